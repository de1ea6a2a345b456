package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/suggest"
)

// serviceFlags are the flags of a command about Services. All these commands
// take the same names: web, shop/web, svc/web with -n shop, and svc/shop/web.
type serviceFlags struct {
	proxyFlags
	namespace string
	all       bool // namespaces
}

// addNamespace adds the flags --namespace and --all-namespaces.
func (f *serviceFlags) addNamespace(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of the Service (default all)")
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "look for the Service in all namespaces (the default)")
	completeWith(cmd, "namespace", f.completeNamespace)
}

// serviceForms are the forms of the name of a Service.
const serviceForms = "NAME, NAMESPACE/NAME or svc/NAME"

// servicePrefix is the beginning of a destination that is a Service.
const servicePrefix = "svc/"

// servicePrefixes can begin the name of a Service, as in kubectl.
var servicePrefixes = []string{servicePrefix, "service/", "services/"}

// parseName parses the name of a Service. Its namespace is empty if the name
// has none and there is no flag.
func (f *serviceFlags) parseName(text string) (name cluster.ServiceName, err error) {
	if f.namespace != "" && f.all {
		return name, misusef("--namespace and --all-namespaces exclude each other")
	}
	rest := text
	for _, prefix := range servicePrefixes {
		if after, ok := strings.CutPrefix(text, prefix); ok {
			rest = after
		}
	}
	namespace, service, ok := strings.Cut(rest, "/")
	if !ok {
		namespace, service = f.namespace, rest
	}
	switch {
	case service == "" || ok && namespace == "" || strings.ContainsAny(service, "/[]:. "):
		return name, misusef("%q is not the name of a Service: want %s", text, serviceForms)
	case f.namespace != "" && f.namespace != namespace:
		return name, misusef("%s is not in namespace %s", text, f.namespace)
	}
	return cluster.ServiceName{Namespace: namespace, Name: service}, nil
}

// parseNames parses the optional name of a Service. NAMESPACE/ stands for all
// Services of a namespace.
func (f *serviceFlags) parseNames(args []string) (q cluster.ServiceName, err error) {
	if len(args) == 0 {
		return cluster.ServiceName{Namespace: f.namespace}, nil
	}
	namespace, isNamespace := strings.CutSuffix(args[0], "/")
	if !isNamespace || namespace == "" || strings.Contains(namespace, "/") {
		return f.parseName(args[0])
	}
	if f.namespace != "" && f.namespace != namespace {
		return q, misusef("%s is not in namespace %s", args[0], f.namespace)
	}
	return cluster.ServiceName{Namespace: namespace}, nil
}

// nameOf returns a name as a user writes it.
func nameOf(name cluster.ServiceName) string {
	if name.Namespace == "" {
		return name.Name
	}
	return name.String()
}

// explainMissing adds to an error about a Service that the proxy does not have
// the one that the user may have meant.
func (f *proxyFlags) explainMissing(ctx context.Context, name cluster.ServiceName, err error) error {
	if _, ok := errors.AsType[socket.NotFound](err); !ok {
		return err
	}
	err = fmt.Errorf("%s: %w", nameOf(name), answer.ErrNoService)
	if meant, ok := f.meant(ctx, name); ok {
		err = fmt.Errorf("%w; did you mean %s?", err, meant)
	}
	return err
}

// meant returns the Service that a user may have meant: the one with the same
// name in another namespace, or one with a similar name.
func (f *proxyFlags) meant(ctx context.Context, wrote cluster.ServiceName) (meant cluster.ServiceName, ok bool) {
	var names, namespaces []string
	byName := make(map[string]cluster.ServiceName)
	for name, err := range answer.Names.Ask(ctx, &f.client, "") {
		if err != nil {
			break
		}
		if _, known := byName[name.Name]; !known || name.Namespace == wrote.Namespace {
			byName[name.Name] = *name
		}
		names, namespaces = append(names, name.Name), append(namespaces, name.Namespace)
	}
	if closest, ok := suggest.Closest(wrote.Namespace, namespaces...); ok {
		for name, err := range answer.Names.Ask(ctx, &f.client, closest) {
			if err == nil && name.Name == wrote.Name {
				return *name, true
			}
		}
	}
	if meant, ok = byName[wrote.Name]; ok {
		return meant, true
	}
	closest, ok := suggest.Closest(wrote.Name, names...)
	return byName[closest], ok
}

// meantNamespace returns the namespace that a user may have meant.
func (f *proxyFlags) meantNamespace(ctx context.Context, wrote string) (meant string, ok bool) {
	var namespaces []string
	for name, err := range answer.Names.Ask(ctx, &f.client, "") {
		if err != nil {
			break
		}
		namespaces = append(namespaces, name.Namespace)
	}
	return suggest.Closest(wrote, namespaces...)
}

// none returns the sentence that there is nothing of a kind in the namespace of
// a query.
func (f *proxyFlags) none(ctx context.Context, what, namespace string) string {
	if namespace == "" {
		return "No " + what
	}
	text := fmt.Sprintf("No %s in namespace %s", what, namespace)
	if meant, ok := f.meantNamespace(ctx, namespace); ok && meant != namespace {
		text += fmt.Sprintf("; did you mean %s?", meant)
	}
	return text
}
