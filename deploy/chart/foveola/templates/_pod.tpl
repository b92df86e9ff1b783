{{- define "foveola.labels" -}}
app.kubernetes.io/name: foveola
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "foveola.security" -}}
runAsNonRoot: true
runAsUser: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "foveola.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
resources:
  requests:
    cpu: {{ .Values.resources.cpu }}
    memory: {{ .Values.resources.memory }}
  limits:
    cpu: {{ .Values.resources.cpu }}
    memory: {{ .Values.resources.memory }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end }}
