package main

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// values are the values of the chart. values.yaml documents them.
type values struct {
	Global            map[string]any                  `json:"global"` // Helm adds it to the values of each chart
	Preset            string                          `json:"preset"`
	APIServer         string                          `json:"apiServer" jsonschema:"pattern=^(https?://[^/]+)?$"`
	Config            v1alpha1.KubeProxyConfiguration `json:"config"`
	Image             image                           `json:"image"`
	ImagePullSecrets  []corev1.LocalObjectReference   `json:"imagePullSecrets"`
	FullnameOverride  name                            `json:"fullnameOverride"`
	ServiceAccount    serviceAccount                  `json:"serviceAccount"`
	Conntrack         conntrack                       `json:"conntrack"`
	ResetStale        bool                            `json:"resetStaleConnections"`
	HashTableSize     int                             `json:"hashTableSize" jsonschema:"minimum=16,maximum=65536"`
	ExtraArgs         []flag                          `json:"extraArgs"`
	ExtraEnv          []corev1.EnvVar                 `json:"extraEnv"`
	Resources         corev1.ResourceRequirements     `json:"resources"`
	UpdateStrategy    appsv1.DaemonSetUpdateStrategy  `json:"updateStrategy"`
	PriorityClassName string                          `json:"priorityClassName"`
	HostAliases       []corev1.HostAlias              `json:"hostAliases"`
	NodeSelector      map[string]string               `json:"nodeSelector"`
	Tolerations       []corev1.Toleration             `json:"tolerations"`
	Affinity          corev1.Affinity                 `json:"affinity"`
	PodLabels         map[string]string               `json:"podLabels"`
	PodAnnotations    map[string]string               `json:"podAnnotations"`
	Metrics           metrics                         `json:"metrics"`
}

// flag is an element of extraArgs, which must begin with a dash.
type flag string

// name is the name of all objects, to which the templates append up to 11
// characters.
type name string

type image struct {
	Repository string `json:"repository" jsonschema:"minLength=1"`
	Tag        string `json:"tag"`
	Digest     string `json:"digest" jsonschema:"pattern=^(sha256:[0-9a-f]{64})?$"`
	PullPolicy string `json:"pullPolicy" jsonschema:"enum=Always,enum=IfNotPresent,enum=Never"`
}

type serviceAccount struct {
	Create      bool              `json:"create"`
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations"`
}

type conntrack struct {
	InitContainer struct {
		Enabled bool `json:"enabled"`
	} `json:"initContainer"`
}

type metrics struct {
	Expose         bool           `json:"expose"`
	Annotations    bool           `json:"annotations"`
	PodMonitor     podMonitor     `json:"podMonitor"`
	PrometheusRule prometheusRule `json:"prometheusRule"`
	Dashboard      dashboard      `json:"dashboard"`
}

type podMonitor struct {
	Enabled  bool              `json:"enabled"`
	Interval string            `json:"interval"`
	Labels   map[string]string `json:"labels"`
}

type prometheusRule struct {
	Enabled bool              `json:"enabled"`
	Labels  map[string]string `json:"labels"`
}

type dashboard struct {
	Enabled     bool              `json:"enabled"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}
