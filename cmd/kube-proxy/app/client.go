package app

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	"k8s.io/klog/v2"
)

// newClients returns two clients of the API server that the configuration names:
// by a kubeconfig file, by its address (master, which overrides the address in the
// file), or else the API server of the cluster that this pod runs in. They do not
// connect yet.
//
// Each client has a rate limiter of its own (clientConnection.qps and burst), so
// that events do not delay lists.
func newClients(config *componentbaseconfig.ClientConnectionConfiguration, master string) (
	client, events kubernetes.Interface, err error,
) {
	restConfig, err := loadRESTConfig(config.Kubeconfig, master)
	if err != nil {
		return nil, nil, err
	}
	restConfig.AcceptContentTypes = config.AcceptContentTypes
	restConfig.ContentType = config.ContentType
	restConfig.QPS = config.QPS
	restConfig.Burst = int(config.Burst)
	if client, err = newClient(restConfig); err != nil {
		return nil, nil, err
	}
	events, err = newClient(restConfig)
	return client, events, err
}

// newClient returns a client with a rate limiter of its own.
func newClient(config *rest.Config) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server at %s: %w", config.Host, err)
	}
	return client, nil
}

func loadRESTConfig(kubeconfig, master string) (*rest.Config, error) {
	if kubeconfig == "" && master == "" {
		klog.InfoS("Neither a kubeconfig file nor the address of the API server is given: using those of the pod")
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("which API server to watch is not known: this is no pod; name it with clientConnection.kubeconfig in the configuration file, " +
				"--kubeconfig or --master, or serve manifests with --manifests")
		}
		return config, err
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: master}},
	).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("it names no API server")
	}
	if err != nil && kubeconfig == "" {
		return nil, fmt.Errorf("--master %q: %w; give the URL of the API server", master, err)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w; name a readable kubeconfig with a cluster and a user in clientConnection.kubeconfig or --kubeconfig",
			kubeconfig, oneLine(err))
	}
	return config, nil
}

// oneLine makes one line of an error that has several.
func oneLine(err error) error {
	if strings.Contains(err.Error(), "\n") {
		return errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	return err
}
