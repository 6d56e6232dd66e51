{{- /*
Copyright The annex Authors.
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* Labels of all objects, besides app.kubernetes.io/name. */ -}}
{{- define "annex.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "annex.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* A letter for each server of the external etcd without TLS. */ -}}
{{- define "annex.plainEtcd" -}}
{{- range .Values.etcd.servers }}{{ if hasPrefix "http://" . }}x{{ end }}{{ end }}
{{- end }}
