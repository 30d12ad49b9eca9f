{{/* Names and labels of the release's objects. */}}

{{- define "model-deployment-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "model-deployment-operator.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "model-deployment-operator.fullname" .) -}}
{{- end -}}

{{/* The Secret of the serving certificate. */}}
{{- define "model-deployment-operator.certificateSecret" -}}
{{- if eq .Values.certificates.provider "secret" -}}
{{- .Values.certificates.secret -}}
{{- else -}}
{{- include "model-deployment-operator.fullname" . }}-certificate
{{- end -}}
{{- end -}}

{{/* The Secret of the operator's own authority and its key. */}}
{{- define "model-deployment-operator.authoritySecret" -}}
{{- include "model-deployment-operator.fullname" . }}-certificate-ca
{{- end -}}

{{- define "model-deployment-operator.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "model-deployment-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "model-deployment-operator.labels" -}}
{{ include "model-deployment-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ .Chart.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}
