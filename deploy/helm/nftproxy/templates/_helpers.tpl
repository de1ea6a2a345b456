{{- define "nftproxy.name" -}}
{{ .Values.fullnameOverride }}
{{- end }}

{{- define "nftproxy.selector" -}}
app.kubernetes.io/name: nftproxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "nftproxy.labels" -}}
{{ include "nftproxy.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/component: service-proxy
app.kubernetes.io/part-of: nftproxy
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "nftproxy.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "nftproxy.name" .) }}
{{- end }}

{{- /* A released chart has the digest of its image. It does not apply to another repository or tag. */}}
{{- define "nftproxy.image" -}}
{{- with .Values.image -}}
{{- $released := and (eq .repository "ghcr.io/nftproxy/nftproxy") (not .tag) -}}
{{- $digest := .digest | default (ternary (index $.Chart.Annotations "nftproxy.io/image-digest") "" $released) -}}
{{ .repository }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* The preset, as YAML. */}}
{{- define "nftproxy.preset" -}}
{{- get (.Files.Get "presets.yaml" | fromYaml) .Values.preset | toYaml }}
{{- end }}

{{- define "nftproxy.apiServer" -}}
{{- $preset := include "nftproxy.preset" . | fromYaml }}
{{- $address := .Values.apiServer | default $preset.apiServer }}
{{- if not $address }}
{{- fail (printf "apiServer is not set: set it to an address of the API server that works without a service proxy, such as --set apiServer=https://10.0.0.1:6443; %s" $preset.help.apiServer) }}
{{- end }}
{{- $address }}
{{- end }}

{{- /* Both containers. The API server is in the pod, not in the ConfigMap: a container of an old pod can then restart
after its ConfigMap is deleted. */}}
{{- define "nftproxy.container" -}}
image: {{ include "nftproxy.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command:
- /usr/local/bin/kube-proxy
- --config=/var/lib/kube-proxy/config.conf
- --master=$(API_SERVER)
- --hostname-override=$(NODE_NAME)
{{- if .Values.metrics.expose }}
- --local-status-pages
{{- end }}
{{- if .Values.resetStaleConnections }}
- --reset-stale-connections
{{- end }}
{{- if ne (int .Values.retryAfterSeconds) 1 }}
- --retry-after={{ int .Values.retryAfterSeconds }}s
{{- end }}
{{- if ne (int .Values.hashTableSize) 251 }}
- --hash-table-size={{ int .Values.hashTableSize }}
{{- end }}
{{- if not .Values.eject }}
- --eject=false
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "nftproxy.env" -}}
env:
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: API_SERVER
  value: {{ include "nftproxy.apiServer" . }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "nftproxy.configMount" -}}
- name: config
  mountPath: /var/lib/kube-proxy
  readOnly: true
{{- end }}
