package stage

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
)

// folderOf returns the folder of the stage of that name. It is in /run, where only root can put something in its place.
func folderOf(name string) string { return "/run/nftproxy-" + name }

// makeFolder makes the folder anew and copies the manifests into it.
func (s *Stage) makeFolder() error {
	if err := s.removeFolder(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.ManifestFolder(), 0o755); err != nil {
		return err
	}
	names, err := fs.Glob(s.config.Manifests, "*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := fs.ReadFile(s.config.Manifests, name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.ManifestFolder(), name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) removeFolder() error { return os.RemoveAll(s.Folder()) }

// WriteEndpoints replaces the EndpointSlices of a Service in the manifests, in one step, and returns when that was.
func (s *Stage) WriteEndpoints(service *cluster.Service, endpoints []cluster.Endpoint) (time.Time, error) {
	data, err := service.EndpointsManifest(endpoints)
	if err != nil {
		return time.Time{}, err
	}
	path := filepath.Join(s.ManifestFolder(), service.EndpointsFile())
	draft := filepath.Join(s.Folder(), "draft")
	if err := os.WriteFile(draft, data, 0o644); err != nil {
		return time.Time{}, fmt.Errorf("endpoints of service %s: %w", service, err)
	}
	written := time.Now()
	if err := os.Rename(draft, path); err != nil {
		return time.Time{}, fmt.Errorf("endpoints of service %s: %w", service, err)
	}
	return written, nil
}
