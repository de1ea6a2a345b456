{{- /* The KubeProxyConfiguration. The preset overrides the defaults, other values override the preset, and
.Values.config overrides all. */}}
{{- define "nftproxy.config" -}}
{{- $config := dict "apiVersion" "kubeproxy.config.k8s.io/v1alpha1" "kind" "KubeProxyConfiguration" "mode" "nftables" }}
{{- $_ := set $config "clientConnection" (dict "kubeconfig" "/var/lib/kube-proxy/kubeconfig.conf") }}
{{- /* The value that the kubelet sets for system-node-critical pods. A lower value needs CAP_SYS_RESOURCE. */}}
{{- $_ := set $config "oomScoreAdj" -997 }}
{{- $preset := include "nftproxy.preset" . | fromYaml }}
{{- $config = mergeOverwrite $config ($preset.config | default dict) }}
{{- if not .Values.conntrack.initContainer.enabled }}
{{- $_ := set $config "conntrack" (dict "maxPerCore" 0 "tcpEstablishedTimeout" "0s" "tcpCloseWaitTimeout" "0s") }}
{{- end }}
{{- if .Values.metrics.expose }}
{{- $_ := set $config "metricsBindAddress" "0.0.0.0:10249" }}
{{- end }}
{{- $config = mergeOverwrite $config (deepCopy .Values.config) }}
{{- include "nftproxy.checkDetectLocal" (dict "config" $config "help" ($preset.help | default dict)) }}
{{- toYaml $config }}
{{- end }}

{{- /* Fails if traffic from pods would not be recognized. */}}
{{- define "nftproxy.checkDetectLocal" -}}
{{- $mode := .config.detectLocalMode | default "ClusterCIDR" }}
{{- $detect := .config.detectLocal | default dict }}
{{- if and (eq $mode "ClusterCIDR") (not .config.clusterCIDR) }}
{{- $choices := list "traffic from pods would not be recognized, because config.clusterCIDR is not set. Choose one:" }}
{{- $choices = append $choices "config.clusterCIDR=10.244.0.0/16 (your CIDRs of all pods, one for each IP family)" }}
{{- $choices = append $choices "config.detectLocalMode=NodeCIDR (if the pods of a node have addresses of spec.podCIDRs of its Node)" }}
{{- $choices = append $choices "config.detectLocalMode=InterfaceNamePrefix,config.detectLocal.interfaceNamePrefix=PREFIX (if the names of the pods' interfaces on the node begin with PREFIX)" }}
{{- $choices = append $choices "config.detectLocalMode=BridgeInterface,config.detectLocal.bridgeInterface=NAME (if the pods of a node are attached to the bridge NAME)" }}
{{- with .help.clusterCIDR }}
{{- $choices = append $choices (printf "%s." .) }}
{{- end }}
{{- fail (join "\n  " $choices) }}
{{- end }}
{{- if and (eq $mode "InterfaceNamePrefix") (not $detect.interfaceNamePrefix) }}
{{- fail "config.detectLocal.interfaceNamePrefix is not set, and config.detectLocalMode is InterfaceNamePrefix" }}
{{- end }}
{{- if and (eq $mode "BridgeInterface") (not $detect.bridgeInterface) }}
{{- fail "config.detectLocal.bridgeInterface is not set, and config.detectLocalMode is BridgeInterface" }}
{{- end }}
{{- end }}

{{- /* The data of the ConfigMap. */}}
{{- define "nftproxy.data" -}}
config.conf: |
  {{- include "nftproxy.config" . | nindent 2 }}
kubeconfig.conf: |
  apiVersion: v1
  kind: Config
  clusters:
  - name: default
    cluster:
      # The flag --master sets the server.
      certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
  contexts:
  - name: default
    context:
      cluster: default
      namespace: default
      user: default
  current-context: default
  users:
  - name: default
    user:
      tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
{{- end }}

{{- /* The name of the ConfigMap has a hash of its content, so that other content changes the pod template. */}}
{{- define "nftproxy.configMap" -}}
{{ include "nftproxy.name" . }}-{{ include "nftproxy.data" . | sha256sum | trunc 10 }}
{{- end }}
