package main

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
	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	"github.com/nftproxy/nftproxy/test/lab"
)

// world is an API server, and a network in which proxies reach it. Every proxy gets a namespace of its own.
type world struct {
	options *options
	dir     string // for files of this world; removed with it
	lab     *lab.Lab
	cluster *cluster.Cluster
	tracing *observe.Tracing
	client  kubernetes.Interface // from outside of the lab
	stock   *stock
	made    int // namespaces
}

// newWorld makes a world whose Services have that many endpoints, and none of these yet.
func newWorld(ctx context.Context, o *options, endpoints int) (w *world, err error) {
	w = &world{options: o, stock: newStock(endpoints)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.dir, err = os.MkdirTemp("", "nftproxy-scale-"); err != nil {
		return w, err
	}
	if err := w.openTracing(); err != nil {
		return w, err
	}
	if w.lab, err = lab.New(lab.Config{}); err != nil {
		return w, err
	}
	pod, err := w.lab.Node2.AddPod("control-plane")
	if err != nil {
		return w, err
	}
	w.cluster, err = cluster.Start(ctx, cluster.Config{
		Namespace: pod.Namespace, Programs: o.programs, Dir: filepath.Join(w.dir, "cluster"), ServiceRanges: lab.ServiceRanges(),
	})
	if err != nil {
		return w, err
	}
	if w.client, err = w.connect(pod.Namespace); err != nil {
		return w, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName}}
	_, err = w.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	return w, err
}

func (w *world) openTracing() (err error) {
	dir := filepath.Join(w.dir, "tracing")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	w.tracing, err = observe.OpenTracing(dir)
	return err
}

// close removes all that there is of the world.
func (w *world) close() error {
	var errs []error
	if w.cluster != nil {
		errs = append(errs, w.cluster.Close())
	}
	if w.lab != nil {
		errs = append(errs, w.lab.Close())
	}
	if w.tracing != nil {
		if err := w.tracing.Close(); err != nil {
			return errors.Join(append(errs, fmt.Errorf("unmount tracefs: %w", err))...) // nothing below it must be removed
		}
	}
	return errors.Join(append(errs, os.RemoveAll(w.dir))...)
}

// connect returns an administrator's client whose connections begin in a namespace. It is not rate limited, and speaks what
// proxies speak.
func (w *world) connect(from *lab.Namespace) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", w.cluster.AdminKubeconfig())
	if err != nil {
		return nil, err
	}
	config.Dial, config.QPS = from.DialContext, -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.WarningHandler = rest.NoWarnings{}
	return kubernetes.NewForConfig(config)
}

// newNode makes a namespace for a proxy, and the Node object that it looks for.
func (w *world) newNode(ctx context.Context) (*lab.Pod, error) {
	w.made++
	pod, err := w.lab.Node1.AddPod(fmt.Sprintf("proxy%d", w.made))
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}
	if node, err = w.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err == nil {
		for _, addr := range pod.Addrs() {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
		}
		_, err = w.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node %s: %w", pod.Name, err), pod.Remove())
	}
	return pod, nil
}
