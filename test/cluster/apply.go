package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Apply replaces or creates the objects of manifests in YAML. The API server
// refuses fields that it does not know. A call of `kubectl apply` takes a second
// of processor time more, because the API server describes all its objects to
// kubectl.
func (s *APIServer) Apply(ctx context.Context, manifests string) error {
	client := s.Client.Discovery().RESTClient()
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		body, err := json.Marshal(object.Object)
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		send := func(request *rest.Request, path string) error {
			return request.AbsPath(path).Param("fieldValidation", "Strict").
				SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
		}
		folder := folderOf(object)
		err = send(client.Put(), path.Join(folder, object.GetName()))
		if apierrors.IsNotFound(err) {
			err = send(client.Post(), folder)
		}
		if err != nil {
			return fmt.Errorf("apply: %w:\n%s", err, document)
		}
	}
	return nil
}

// folderOf returns the path of the objects of the same kind and namespace in the
// API.
func folderOf(object *unstructured.Unstructured) string {
	kind := object.GroupVersionKind()
	root := "/apis/" + kind.Group
	if kind.Group == "" {
		root = "/api"
	}
	var within string
	if !slices.Contains([]string{"Namespace", "Node", "ServiceCIDR", "ClusterRole", "ClusterRoleBinding"}, kind.Kind) {
		within = path.Join("namespaces", cmp.Or(object.GetNamespace(), metav1.NamespaceDefault))
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return path.Join(root, kind.Version, within, resource.Resource)
}
