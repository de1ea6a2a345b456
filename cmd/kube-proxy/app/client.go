package app

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
)

// newClients returns two clients of the API server. The kubeconfig file names
// the API server, and master overrides its address; without both, the clients
// use the in-cluster configuration. The clients do not connect yet.
//
// Each client has its own rate limiter (clientConnection.qps and burst), so
// that events do not delay lists. contact records the requests of client.
func newClients(
	config *componentbaseconfig.ClientConnectionConfiguration, master string, contact *apiclient.Contact,
) (client, events *apiclient.Client, err error) {
	restConfig, err := loadRESTConfig(config.Kubeconfig, master)
	if err != nil {
		return nil, nil, err
	}
	restConfig.AcceptContentTypes = config.AcceptContentTypes
	restConfig.ContentType = config.ContentType
	restConfig.QPS = config.QPS
	restConfig.Burst = int(config.Burst)
	if events, err = newClient(restConfig); err != nil {
		return nil, nil, err
	}
	restConfig.Wrap(contact.Wrap)
	client, err = newClient(restConfig)
	return client, events, err
}

func newClient(config *rest.Config) (*apiclient.Client, error) {
	client, err := apiclient.New(config)
	if err != nil {
		return nil, fmt.Errorf("create a client of the API server at %s: %w", config.Host, err)
	}
	return client, nil
}

func loadRESTConfig(kubeconfig, master string) (*rest.Config, error) {
	if kubeconfig == "" && master == "" {
		klog.InfoS("Neither a kubeconfig nor --master is set, using the in-cluster configuration")
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no API server is configured, and this process does not run in a pod: " +
				"set clientConnection.kubeconfig in the configuration file, --kubeconfig or --master, " +
				"or serve manifests with --manifests")
		}
		return config, err
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: master}},
	).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("no API server is configured")
	}
	if err != nil && kubeconfig == "" {
		return nil, fmt.Errorf("--master %q: %w; set it to the URL of the API server", master, err)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w; set clientConnection.kubeconfig or --kubeconfig "+
			"to a file with a cluster and a user", kubeconfig, oneLine(err))
	}
	return config, nil
}

// oneLine returns err with its text in one line.
func oneLine(err error) error {
	if strings.Contains(err.Error(), "\n") {
		return errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	return err
}
