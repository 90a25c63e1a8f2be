{{- define "privest.selector" -}}
app.kubernetes.io/name: privest
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of pods that the service's own selectors must not find. */}}
{{- define "privest.beside" -}}
app.kubernetes.io/name: privest-leavers
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
{{ add (div (mul (add (int64 .Values.engine.workers) 5) (int64 .Values.engine.workerMemory)) 1048576) 1025 }}Mi
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

{{/* Who a pod is. */}}
{{- define "privest.user" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* Where a pod gets out to: names, the database, and the ports of everybody else. */}}
{{- define "privest.ways" -}}
- to: # names
    - namespaceSelector:
        matchLabels: { kubernetes.io/metadata.name: {{ .Values.network.dnsNamespace }} }
  ports: [{ protocol: UDP, port: 53 }, { protocol: TCP, port: 53 }]
- ports: [{ protocol: TCP, port: {{ .Values.database.port }} }]
  {{- with .Values.database.networks }}
  to:
    {{- range . }}
    - ipBlock: { cidr: {{ . }} }
    {{- end }}
  {{- end }}
{{- with .Values.network.egressPorts }}
- ports:
    {{- range . }}
    - { protocol: TCP, port: {{ . }} }
    {{- end }}
{{- end }}
{{- end }}
