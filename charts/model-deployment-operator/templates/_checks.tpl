{{/*
What the schema cannot say: a cluster takes this chart once, and some values exclude each other.
`lookup` finds nothing without a cluster, so `helm template` passes the first two.
*/}}
{{- define "model-deployment-operator.checks" -}}
{{- $release := printf "release %s in namespace %s" .Release.Name .Release.Namespace -}}

{{- $service := lookup "apiregistration.k8s.io/v1" "APIService" "" "v1.worker.gpustack.ai" -}}
{{- if $service -}}
{{- $owner := include "model-deployment-operator.owner" $service -}}
{{- if ne $owner $release -}}
{{- fail (printf "\n\nAPIService v1.worker.gpustack.ai already belongs to %s: a cluster has one model-deployment-operator. Upgrade or uninstall that one; if it is gone and only this was left behind, run `kubectl delete apiservice v1.worker.gpustack.ai` and install again." $owner) -}}
{{- end -}}
{{- end -}}

{{- if .Values.crds.install -}}
{{- $definition := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "modeldeployments.worker.gpustack.ai" -}}
{{- if $definition -}}
{{- $owner := include "model-deployment-operator.owner" $definition -}}
{{- if ne $owner $release -}}
{{- fail (printf "\n\nCustomResourceDefinition modeldeployments.worker.gpustack.ai already belongs to %s. Install under that name and namespace, or set crds.install=false to leave the definition to its owner, or hand it over and install again:\n  kubectl label crd modeldeployments.worker.gpustack.ai app.kubernetes.io/managed-by=Helm --overwrite\n  kubectl annotate crd modeldeployments.worker.gpustack.ai meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s --overwrite" $owner .Release.Name .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $name := include "model-deployment-operator.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "\n\nThe objects would be named %s, and a Service's name consists of lower case letters, digits and dashes and starts with a letter: set fullnameOverride, or name the release otherwise." $name) -}}
{{- end -}}

{{- if and .Values.scrape.ca.configMap .Values.scrape.ca.secret -}}
{{- fail "\n\nscrape.ca.configMap and scrape.ca.secret are both set: keep one." -}}
{{- end -}}

{{- if and (eq .Values.certificates.provider "secret") (not .Values.certificates.secret) -}}
{{- fail "\n\ncertificates.provider is secret: name the Secret in certificates.secret." -}}
{{- end -}}

{{- if le (int .Values.terminationGracePeriodSeconds) (int .Values.shutdownDelaySeconds) -}}
{{- fail (printf "\n\nterminationGracePeriodSeconds (%v) must be longer than shutdownDelaySeconds (%v), or every replica is killed while it still serves." .Values.terminationGracePeriodSeconds .Values.shutdownDelaySeconds) -}}
{{- end -}}

{{- if eq (int .Values.ports.https) (int .Values.ports.metrics) -}}
{{- fail (printf "\n\nports.https and ports.metrics are both %v: they must differ." .Values.ports.https) -}}
{{- end -}}
{{- end -}}

{{/* Who holds an object of the cluster, in the words of the messages above. */}}
{{- define "model-deployment-operator.owner" -}}
{{- $annotations := .metadata.annotations | default dict -}}
{{- with index $annotations "meta.helm.sh/release-name" -}}
release {{ . }} in namespace {{ index $annotations "meta.helm.sh/release-namespace" }}
{{- else -}}
no Helm release
{{- end -}}
{{- end -}}
