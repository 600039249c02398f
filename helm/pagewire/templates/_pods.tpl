{{/* What the pods of all roles have in common. All take root, component and values; workers pool. */}}

{{- define "pagewire.podMetadata" -}}
labels:
  {{- $selector := include "pagewire.selector" . | fromYaml }}
  {{- $labels := include "pagewire.podLabels" . | fromYaml }}
  {{- merge $selector .root.Values.podLabels $labels | toYaml | nindent 2 }}
{{- $annotations := merge (dict) (default (dict) .values.podAnnotations) .root.Values.podAnnotations }}
{{- if and .root.Values.metrics.annotations (ne .component "redis") }}
{{- $scheme := ternary "https" "http" .root.Values.metrics.tls }}
{{- $annotations = merge $annotations (dict "prometheus.io/scrape" "true" "prometheus.io/port" "9090" "prometheus.io/scheme" $scheme) }}
{{- end }}
{{- /* The token is in the environment, so that another one needs other pods. The file of API keys is
read again by itself. */}}
{{- if and (has .component (list "frontend" "worker")) .root.Values.hubToken.value }}
{{- $annotations = merge $annotations (dict "checksum/hub-token" (sha256sum .root.Values.hubToken.value)) }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "pagewire.podSpec" -}}
serviceAccountName: {{ include "pagewire.serviceAccount" .root }}
automountServiceAccountToken: false
# A Service called pagewire would put PAGEWIRE_PORT into the environment, which is a setting.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with default .root.Values.priorityClassName .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  # A volume with a model is large: its files are not walked at every start.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "pagewire.selector" . | fromYaml)) }}
topologySpreadConstraints:
{{- range .values.topologySpreadConstraints }}
  - {{- merge (dict) . $own | toYaml | nindent 4 }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    {{- toYaml $own | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "pagewire.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  capabilities:
    drop: [ALL]
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "pagewire.container" -}}
image: {{ include "pagewire.image" (dict "root" .root "image" .values.image) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{ include "pagewire.containerSecurity" . }}
resources:
  {{- include "pagewire.resources" . | nindent 2 }}
{{- end -}}

{{/* A pool on GPU asks for one device. */}}
{{- define "pagewire.resources" -}}
{{- $resources := deepCopy .values.resources -}}
{{- if eq (default "" .values.device) "gpu" -}}
{{- $limits := merge (dict) (default (dict) $resources.limits) (dict .values.gpuResource 1) -}}
{{- $resources = merge (dict "limits" $limits) (omit $resources "limits") -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* Settings of the hub, for who reads models, and what users add. */}}
{{- define "pagewire.env" -}}
- name: HOME
  value: /tmp
{{- if has .component (list "frontend" "worker") }}
- name: HF_HUB_CACHE
  value: {{ .root.Values.modelVolume.mountPath }}/hub
{{- if .root.Values.modelVolume.readOnly }}
- name: HF_HUB_OFFLINE
  value: "1"
{{- end }}
{{- with include "pagewire.hubTokenSecret" .root }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.root.Values.hubToken.key }}
{{- end }}
{{- end }}
{{- with concat .root.Values.extraEnv .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pagewire.volumeMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if has .component (list "frontend" "worker") }}
- name: models
  mountPath: {{ .root.Values.modelVolume.mountPath }}
  {{- if .root.Values.modelVolume.readOnly }}
  readOnly: true
  {{- end }}
{{- end }}
{{- if and .root.Values.tls.enabled (ne .component "redis") }}
- name: tls
  mountPath: /etc/pagewire/tls
  readOnly: true
{{- end }}
{{- if and .root.Values.metrics.tokenSecret (ne .component "redis") }}
- name: metrics-token
  mountPath: /etc/pagewire/metrics
  readOnly: true
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pagewire.volumes" -}}
- name: tmp
  emptyDir: {}
{{- if has .component (list "frontend" "worker") }}
- name: models
  {{- with include "pagewire.modelClaim" .root }}
  persistentVolumeClaim:
    claimName: {{ . }}
    readOnly: {{ $.root.Values.modelVolume.readOnly }}
  {{- else }}
  emptyDir:
    {{- with .root.Values.modelVolume.emptyDirSizeLimit }}
    sizeLimit: {{ . }}
    {{- else }} {}
    {{- end }}
  {{- end }}
{{- end }}
{{- if and .root.Values.tls.enabled (ne .component "redis") }}
- name: tls
  secret:
    secretName: {{ include "pagewire.tlsSecret" . }}
    items:
      {{- range list "ca.crt" "tls.crt" "tls.key" }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- if and .root.Values.metrics.tokenSecret (ne .component "redis") }}
- name: metrics-token
  secret:
    secretName: {{ .root.Values.metrics.tokenSecret }}
    items:
      - {key: {{ .root.Values.metrics.tokenKey }}, path: token}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pagewire.logArgs" -}}
- --log-level={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
- --metrics-host=0.0.0.0
- --metrics-port=9090
{{- if .Values.metrics.tls }}
- --metrics-tls
{{- end }}
{{- if .Values.metrics.tokenSecret }}
- --metrics-token-file=/etc/pagewire/metrics/token
{{- end }}
{{- if .Values.tls.enabled }}
- --tls-dir=/etc/pagewire/tls
{{- else }}
- --insecure
{{- end }}
{{- end -}}

{{/* How clients speak to the frontends' HTTP port. */}}
{{- define "pagewire.frontendScheme" -}}
{{- ternary "https" "http" (ne .Values.frontend.tlsSecret "") -}}
{{- end -}}

{{/* The secret with the certificate of a role. */}}
{{- define "pagewire.tlsSecret" -}}
{{- default (printf "%s-%s-tls" (include "pagewire.fullname" .root) .component) (get .root.Values.tls.secrets .component) -}}
{{- end -}}

{{/* Three questions to the health service on `port`, each with a name of its own. */}}
{{- define "pagewire.grpcProbes" -}}
startupProbe:
  {{- include "pagewire.asked" (dict "service" "startup" "role" .) | nindent 2 }}
  periodSeconds: {{ .values.startup.periodSeconds }}
  failureThreshold: {{ .values.startup.failureThreshold }}
  timeoutSeconds: {{ .root.Values.probes.readiness.timeoutSeconds }}
readinessProbe:
  {{- include "pagewire.asked" (dict "service" "readiness" "role" .) | nindent 2 }}
  {{- toYaml .root.Values.probes.readiness | nindent 2 }}
livenessProbe:
  {{- include "pagewire.asked" (dict "service" "liveness" "role" .) | nindent 2 }}
  {{- toYaml .root.Values.probes.liveness | nindent 2 }}
  {{- include "pagewire.hungGrace" . | nindent 2 }}
{{- end -}}

{{/* The kubelet speaks no TLS to gRPC: it asks beside the metrics in its place. */}}
{{- define "pagewire.asked" -}}
{{- if .role.root.Values.tls.enabled -}}
httpGet: {path: /health/{{ .service }}, port: metrics, scheme: {{ ternary "HTTPS" "HTTP" .role.root.Values.metrics.tls }}}
{{- else -}}
grpc: {port: {{ .role.port }}, service: {{ .service }}}
{{- end -}}
{{- end -}}

{{/* What hangs does not hear that it is to end: it is not waited for as for one that drains. */}}
{{- define "pagewire.hungGrace" -}}
terminationGracePeriodSeconds: 5
{{- end -}}

{{/* Takes names and numbers. */}}
{{- define "pagewire.ports" -}}
ports:
{{- range $name, $number := . }}
  - {name: {{ $name }}, containerPort: {{ $number }}}
{{- end }}
{{- end -}}

{{- /* The object of --kv-events-config. */}}
{{- define "pagewire.kvEvents" -}}
{{- $events := .Values.kvEvents -}}
{{- $config := dict
    "enable_kv_cache_events" true
    "endpoint" (printf "tcp://*:%d" (int $events.port))
    "replay_endpoint" (printf "tcp://*:%d" (int $events.replayPort))
    "snapshot_endpoint" (printf "tcp://*:%d" (int $events.snapshotPort)) -}}
{{- if $events.curveSecret -}}
{{- $_ := set $config "curve_secret_key_file" "/etc/pagewire/kv-events/server.key_secret" -}}
{{- $_ := set $config "curve_client_keys" "/etc/pagewire/kv-events" -}}
{{- else -}}
{{- $_ := set $config "insecure" $events.insecure -}}
{{- end -}}
{{- merge $config $events.config | toJson -}}
{{- end -}}

{{- define "pagewire.frontendKind" -}}
{{- .Values.frontend.group.enabled | ternary "StatefulSet" "Deployment" -}}
{{- end -}}
