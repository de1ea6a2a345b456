package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nftproxy/nftproxy/test/apiserver/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

// Config says what a stage is made of. All fields are needed but Profiling.
type Config struct {
	// Name is that of the benchmark: what begins the names of its folders.
	Name string
	// Programs is the folder of etcd and kube-apiserver.
	Programs string
	// Profiling makes proxies serve profiles.
	Profiling bool
}

// Stage is an API server, and a network in which proxies reach it. Every proxy gets a namespace of its own.
type Stage struct {
	Dir     string // for files of this stage; removed with it
	Lab     *lab.Lab
	Cluster *cluster.Cluster
	Client  kubernetes.Interface // from outside of the lab

	config Config
	made   int // nodes
}

// New makes a stage without any Service in its namespace.
func New(ctx context.Context, config Config) (s *Stage, err error) {
	if config.Name == "" || config.Programs == "" {
		return nil, fmt.Errorf("stage: a field of the configuration is missing: %+v", config)
	}
	s = &Stage{config: config}
	defer func() {
		if err != nil {
			s, err = nil, errors.Join(err, s.Close())
		}
	}()
	if s.Dir, err = os.MkdirTemp("", "nftproxy-"+config.Name+"-"); err != nil {
		return s, err
	}
	if s.Lab, err = lab.New(lab.Config{}); err != nil {
		return s, err
	}
	pod, err := s.Lab.Node2.AddPod("control-plane")
	if err != nil {
		return s, err
	}
	s.Cluster, err = cluster.Start(ctx, cluster.Config{
		Namespace: pod.Namespace, Programs: config.Programs, Dir: filepath.Join(s.Dir, "cluster"), ServiceRanges: lab.ServiceRanges(),
	})
	if err != nil {
		return s, err
	}
	if s.Client, err = s.Connect(pod.Namespace); err != nil {
		return s, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NamespaceName}}
	_, err = s.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return s, err
}

// Close removes all that there is of the stage.
func (s *Stage) Close() error {
	errs := []error{s.CloseCluster()}
	if s.Lab != nil {
		errs = append(errs, s.Lab.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.Dir))...)
}

// CloseCluster ends the API server. The lab stays, with what proxies wrote in it.
func (s *Stage) CloseCluster() error {
	if s.Cluster == nil {
		return nil
	}
	return s.Cluster.Close()
}

// Connect returns an administrator's client whose connections begin in a namespace. It is not rate limited, and speaks what
// proxies speak.
func (s *Stage) Connect(from *lab.Namespace) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Cluster.AdminKubeconfig())
	if err != nil {
		return nil, err
	}
	config.Dial, config.QPS = from.DialContext, -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.WarningHandler = rest.NoWarnings{}
	return kubernetes.NewForConfig(config)
}

// newPod makes a namespace for a proxy, and the Node object that it looks for.
func (s *Stage) newPod(ctx context.Context) (*lab.Pod, error) {
	s.made++
	pod, err := s.Lab.Node1.AddPod(fmt.Sprintf("proxy%d", s.made))
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}
	if node, err = s.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err == nil {
		for _, addr := range pod.Addrs() {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
		}
		_, err = s.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node %s: %w", pod.Name, err), pod.Remove())
	}
	return pod, nil
}
