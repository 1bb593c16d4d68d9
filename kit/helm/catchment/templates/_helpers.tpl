{{- define "catchment.name" -}}
{{- printf "%s-catchment" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "catchment.labels" -}}
app.kubernetes.io/name: catchment
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
