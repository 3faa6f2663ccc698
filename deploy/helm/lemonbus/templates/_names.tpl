{{/* The name of all objects: the release's, with the chart's if that is not in it. A StatefulSet's has at most 52 characters. */}}
{{- define "lemonbus.name" -}}
{{- $name := contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "lemonbus.selector" -}}
app.kubernetes.io/name: lemonbus
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lemonbus.labels" -}}
{{ include "lemonbus.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
