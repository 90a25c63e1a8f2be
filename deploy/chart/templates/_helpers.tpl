{{- define "privest.selector" -}}
app.kubernetes.io/name: privest
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "privest.labels" -}}
{{ include "privest.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "privest.image" -}}
{{ .Values.image.repository }}@{{ required "image.digest is what the push of the image told: sha256:…" .Values.image.digest }}
{{- end }}

{{- define "privest.claim" -}}
{{ .Values.data.claim | default (printf "%s-data" .Release.Name) }}
{{- end }}

{{/* All workers at their worst, and the service itself, in MiB. */}}
{{- define "privest.memory" -}}
{{ add (div (mul (add (int64 .Values.engine.workers) 4) (int64 .Values.engine.workerMemory)) 1048576) 1025 }}Mi
{{- end }}

{{- define "privest.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* Where the certificates are that vouch for PostgreSQL; libpq reads the variable. */}}
{{- define "privest.authorities" -}}
{{- if .Values.secrets.authorities }}
- { name: PGSSLROOTCERT, value: /run/secrets/authorities/ca.crt }
{{- end }}
{{- end }}
