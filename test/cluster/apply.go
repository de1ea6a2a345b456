package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Object is an object of any kind.
type Object = unstructured.Unstructured

// Parse returns the objects of manifests in YAML.
func Parse(manifests string) (objects []*Object, err error) {
	for document := range strings.SplitSeq(manifests, "---\n") {
		object := &Object{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// Apply creates or replaces objects, and sets their status. A change that the
// API does not allow deletes and creates an object. The API server refuses
// fields that it does not know. A call of `kubectl apply` takes two seconds of
// processor time more: the API server describes all kinds of objects to it.
func (s *APIServer) Apply(ctx context.Context, objects ...*Object) error {
	for _, o := range objects {
		err := s.put(ctx, o)
		if apierrors.IsInvalid(err) {
			if err = s.Delete(ctx, o); err == nil {
				err = s.put(ctx, o)
			}
		}
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func (s *APIServer) put(ctx context.Context, o *Object) error {
	body, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	send := func(request *rest.Request, to ...string) error {
		return request.AbsPath(to...).Param("fieldValidation", "Strict").
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	}
	client, folder := s.Client.Discovery().RESTClient(), folderOf(o)
	err = send(client.Put(), folder, o.GetName())
	if apierrors.IsNotFound(err) {
		err = send(client.Post(), folder)
	}
	if o.Object["status"] != nil && err == nil {
		err = send(client.Put(), folder, o.GetName(), "status")
	}
	return err
}

// Delete deletes objects. They may not exist.
func (s *APIServer) Delete(ctx context.Context, objects ...*Object) error {
	for _, o := range objects {
		err := s.Client.Discovery().RESTClient().Delete().AbsPath(folderOf(o), o.GetName()).Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Clear deletes the Nodes, and the Services, endpoints, pods and their
// configuration in the namespaces default and kube-system. Requests of service
// accounts before it are not listed any more. Roles do not change.
func (c *Cluster) Clear(ctx context.Context) error {
	var errs []error
	remove := func(folder string) {
		all := c.Admin().Discovery().RESTClient().Delete().AbsPath(folder).Param("gracePeriodSeconds", "0").
			Param("fieldSelector", "metadata.name!=kubernetes") // the Service of the API server
		if err := all.Do(ctx).Error(); err != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", folder, err))
		}
	}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		for _, resource := range []string{
			"/api/v1/%s/services", "/apis/discovery.k8s.io/v1/%s/endpointslices", "/api/v1/%s/pods",
			"/apis/apps/v1/%s/daemonsets", "/api/v1/%s/configmaps", "/api/v1/%s/events", "/api/v1/%s/serviceaccounts",
		} {
			remove(fmt.Sprintf(resource, "namespaces/"+namespace))
		}
	}
	remove("/api/v1/nodes")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleared = time.Now()
	return errors.Join(errs...)
}

// folderOf returns the path of the objects of the same kind and namespace in
// the API.
func folderOf(o *Object) string {
	kind := o.GroupVersionKind()
	root := "/apis/" + kind.Group
	if kind.Group == "" {
		root = "/api"
	}
	var within string
	if !slices.Contains([]string{"Namespace", "Node", "ServiceCIDR", "ClusterRole", "ClusterRoleBinding"}, kind.Kind) {
		within = path.Join("namespaces", cmp.Or(o.GetNamespace(), metav1.NamespaceDefault))
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return path.Join(root, kind.Version, within, resource.Resource)
}
