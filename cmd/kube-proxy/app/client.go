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

// newClient returns a client of the API server that the configuration names: by a kubeconfig file, by its address (master, which overrides the
// file's), or else the one of the cluster that this pod runs in. It does not talk to it yet.
func newClient(config *componentbaseconfig.ClientConnectionConfiguration, master string) (kubernetes.Interface, error) {
	restConfig, err := loadRESTConfig(config.Kubeconfig, master)
	if err != nil {
		return nil, err
	}
	restConfig.AcceptContentTypes = config.AcceptContentTypes
	restConfig.ContentType = config.ContentType
	restConfig.QPS = config.QPS
	restConfig.Burst = int(config.Burst)
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("client of the API server at %s: %w", restConfig.Host, err)
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
