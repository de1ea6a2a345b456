package cluster

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// URL is that of APIServer, by the IPv4 address of its namespace.
func (c *Cluster) URL() string { return c.url(c.config.Namespace.IPv4, firstPort) }

// CA is the certificate of the cluster's authority, PEM.
func (c *Cluster) CA() []byte { return c.authority.pem }

// AdminKubeconfig is a file by which a program reaches APIServer and may do everything.
func (c *Cluster) AdminKubeconfig() string { return c.kubeconfig }

// Token returns a token of a service account, which must exist. It holds for a day.
func (c *Cluster) Token(ctx context.Context, namespace, serviceAccount string) (string, error) {
	const day = 24 * 60 * 60
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](day)}}
	answer, err := c.Admin().CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of service account %s/%s: %w", namespace, serviceAccount, err)
	}
	return answer.Status.Token, nil
}

// WriteKubeconfig writes a file by which a program reaches APIServer with a token.
func (c *Cluster) WriteKubeconfig(path, token string) error {
	return c.writeKubeconfig(path, &clientcmdapi.AuthInfo{Token: token})
}

func (c *Cluster) writeAdminKubeconfig() error {
	pair, err := c.issueAdmin()
	if err != nil {
		return err
	}
	return c.writeKubeconfig(c.kubeconfig, &clientcmdapi.AuthInfo{ClientCertificateData: pair.certificate, ClientKeyData: pair.key})
}

func (c *Cluster) writeKubeconfig(path string, user *clientcmdapi.AuthInfo) error {
	const name = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.URL(), CertificateAuthorityData: c.authority.pem}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, path)
}
