package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"github.com/nftproxy/nftproxy/test/script"
)

// generic has the values that the chart requires without a preset.
const generic = "--set=apiServer=" + apiServer + ",config.clusterCIDR=" + clusterCIDR

// TestScripts runs the scripts of testdata/scripts. Their steps are:
//
//	helm FLAG…           renders the chart, with the values that it requires
//	preset NAME FLAG…    renders the chart with a preset, and no other value
//	kustomize NAME       renders a kustomization of deploy/kustomize
//	objects              lists the rendered objects
//	get OBJECT PATH      prints a field of a rendered object; PATH is a JSONPath,
//	                     and the object the start of "Kind name"
//	file OBJECT KEY      prints a file of a ConfigMap
//	run TOOL ARG…        runs a tool of this module
//	image ARG…           runs deploy/image
func TestScripts(t *testing.T) {
	build := builder(t)
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		var rendered objects
		render := func(command ...string) (string, error) {
			out, errs, err := tool(command[0], command[1:]...)
			if err != nil {
				return "", fmt.Errorf("%w\n%s", err, errs)
			}
			rendered = decode(e.T, out)
			return out, nil
		}
		source, err := filepath.Abs(repository)
		e.Setenv("SOURCE", source)
		return script.Steps(map[string]any{
			"helm": func(flags ...string) (string, error) {
				return render(append(helmTemplate, append([]string{generic}, flags...)...)...)
			},
			"preset": func(name string, flags ...string) (string, error) {
				return render(append(helmTemplate, append([]string{"--set=preset=" + name}, flags...)...)...)
			},
			"kustomize": func(name string) (string, error) {
				return render("kustomize", "build", filepath.Join(repository, "deploy/kustomize", name))
			},
			"objects": func() string { return strings.Join(rendered.names(), "\n") + "\n" },
			"get":     func(object, path string) (string, error) { return rendered.field(object, path) },
			"file": func(object, key string) (string, error) {
				return rendered.field(object, "{.data."+strings.ReplaceAll(key, ".", `\.`)+"}")
			},
			"run": func(name string, args ...string) (string, error) {
				out, errs, err := tool(name, args...)
				if err != nil {
					err = fmt.Errorf("%w\n%s%s", err, out, errs)
				}
				return out, err
			},
			"image": func(s *script.Script, args ...string) (string, error) { return build(s.Getenv("WORK"), args...) },
		}), err
	}})
}

// field returns a field of the object whose key starts with a text. Lists and
// objects are JSON.
func (all objects) field(key, path string) (string, error) {
	for _, name := range all.names() {
		if !strings.HasPrefix(name, key) {
			continue
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(all[name])
		if err != nil {
			return "", err
		}
		j := jsonpath.New(key).AllowMissingKeys(true)
		if err := j.Parse(path); err != nil {
			return "", err
		}
		found, err := j.FindResults(fields)
		if err != nil {
			return "", err
		}
		var text strings.Builder
		for _, values := range found {
			for _, v := range values {
				fmt.Fprintln(&text, plain(v))
			}
		}
		return text.String(), nil
	}
	return "", fmt.Errorf("got no %s in %v", key, all.names())
}

// plain returns a string, a number or a bool as it is, and others as JSON.
func plain(v reflect.Value) string {
	if text, ok := v.Interface().(string); ok {
		return text
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// builder builds deploy/image and returns a function that runs it in a folder.
func builder(t *testing.T) func(dir string, args ...string) (string, error) {
	t.Helper()
	command := filepath.Join(t.TempDir(), "image")
	cmd := exec.Command("go", "build", "-o", command, "./image")
	cmd.Dir = filepath.Join(repository, "deploy")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	licence, err := filepath.Abs(filepath.Join(repository, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	return func(dir string, args ...string) (string, error) {
		cmd := exec.Command(command, append([]string{"--licence", licence, "--created", "1700000000"}, args...)...)
		cmd.Dir, cmd.Env = dir, os.Environ()
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return string(out), err
	}
}
