package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/lab"
)

// URL returns the URL of APIServer, by the IPv4 address of its namespace.
func (c *Cluster) URL() string { return c.url(firstPort) }

func (c *Cluster) url(port uint16) string {
	return "https://" + netip.AddrPortFrom(c.config.Namespace.IPv4, port).String()
}

// Serve serves HTTP/2 over TLS with the address and the certificate of the API
// servers. The caller closes the server.
func (c *Cluster) Serve(port uint16, handler http.Handler) (*http.Server, error) {
	listener, err := c.config.Namespace.Listen("tcp", netip.AddrPortFrom(c.config.Namespace.IPv4, port))
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.ServeTLS(listener, c.path(servingCertFile), c.path(servingKeyFile)) }() // until Close
	return server, nil
}

// CA returns the certificate of the cluster's authority, PEM.
func (c *Cluster) CA() []byte { return c.ca }

// AdminKubeconfig returns the kubeconfig file of an administrator.
func (c *Cluster) AdminKubeconfig() string { return c.kubeconfig }

// Connect returns an administrator's client of APIServer whose connections
// begin in a namespace. It has no rate limit and uses protobuf, as proxies
// do.
func (c *Cluster) Connect(from *lab.Namespace) (kubernetes.Interface, error) {
	return c.connect(from, firstPort)
}

func (c *Cluster) connect(from *lab.Namespace, port uint16) (kubernetes.Interface, error) {
	host := c.url(port)
	if from == c.config.Namespace { // whose addresses can go and come
		host = fmt.Sprintf("https://127.0.0.1:%d", port)
	}
	return kubernetes.NewForConfig(&rest.Config{
		Host: host, Dial: from.DialContext, QPS: -1, BearerToken: c.adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		ContentConfig:   rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
		WarningHandler:  rest.NoWarnings{},
	})
}

// Token returns a token of an existing service account that is valid for a day.
func (c *Cluster) Token(ctx context.Context, namespace, serviceAccount string) (string, error) {
	const day = 24 * 60 * 60
	spec := authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](day)}
	request := &authenticationv1.TokenRequest{Spec: spec}
	accounts := c.Admin().CoreV1().ServiceAccounts(namespace)
	answer, err := accounts.CreateToken(ctx, serviceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of service account %s/%s: %w", namespace, serviceAccount, err)
	}
	return answer.Status.Token, nil
}

// WriteKubeconfig writes a kubeconfig file for APIServer with a token.
func (c *Cluster) WriteKubeconfig(path, token string) error {
	const name = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthorityData: c.ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, path)
}

// Configuration returns a configuration file of a proxy, with further lines.
// Parameters of connection tracking stay as they are.
func (c *Cluster) Configuration(mode, node string, lines ...string) string {
	return strings.Join(append([]string{
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1", "kind: KubeProxyConfiguration", "mode: " + mode,
		"hostnameOverride: " + node, "clientConnection: {kubeconfig: " + c.kubeconfig + "}",
		"conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}",
	}, lines...), "\n") + "\n"
}

// CreateNode creates the Node object of a namespace, with its addresses.
func (c *Cluster) CreateNode(ctx context.Context, at *lab.Namespace, podRanges ...netip.Prefix) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: at.Name}}
	for _, prefix := range podRanges {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, prefix.String())
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	node, err := c.Admin().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, addr := range at.Addrs() {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: addr.String(),
		})
	}
	_, err = c.Admin().CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// Kubectl runs kubectl as administrator and returns its standard output. An
// error contains the standard error.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := c.config.Namespace.Command(ctx, filepath.Join(c.config.Programs, "kubectl"), args...)
	cmd.Env = []string{"KUBECONFIG=" + c.kubeconfig, "HOME=" + c.config.Dir}
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return string(out), nil
}

// Isolate drops all packets between a namespace and the control plane, in both
// directions and without an answer. Connections stay open at both ends.
func (c *Cluster) Isolate(from *lab.Namespace) error {
	return c.eachWay(from, (*lab.Namespace).Blackhole)
}

// Rejoin reverts Isolate.
func (c *Cluster) Rejoin(from *lab.Namespace) error {
	return c.eachWay(from, (*lab.Namespace).RemoveRoute)
}

func (c *Cluster) eachWay(from *lab.Namespace, change func(at *lab.Namespace, to ...netip.Prefix) error) error {
	to := c.config.Namespace
	return errors.Join(
		change(from, lab.HostPrefixes(to.Addrs()...)...), change(to, lab.HostPrefixes(from.Addrs()...)...))
}
