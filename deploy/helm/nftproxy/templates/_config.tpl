{{- /* The KubeProxyConfiguration. .Values.config overrides the fields that other values imply. */}}
{{- define "nftproxy.config" -}}
{{- $config := dict "apiVersion" "kubeproxy.config.k8s.io/v1alpha1" "kind" "KubeProxyConfiguration" }}
{{- if not .Values.conntrack.initContainer.enabled }}
{{- $_ := set $config "conntrack" (dict "maxPerCore" 0 "tcpEstablishedTimeout" "0s" "tcpCloseWaitTimeout" "0s") }}
{{- end }}
{{- if .Values.metrics.expose }}
{{- $_ := set $config "metricsBindAddress" "0.0.0.0:10249" }}
{{- end }}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) }}
{{- end }}

{{- define "nftproxy.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The command of both containers. */}}
{{- define "nftproxy.command" -}}
- /usr/local/bin/kube-proxy
- --config=/var/lib/kube-proxy/config.conf
- --master=$(API_SERVER)
- --hostname-override=$(NODE_NAME)
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "nftproxy.env" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: API_SERVER
  valueFrom:
    configMapKeyRef:
      name: nftproxy
      key: apiServer
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
