{{/* Pools of workers, and which models they serve. */}}

{{/* One pool with what it does not say itself, as YAML. Takes root and pool. */}}
{{- define "pagewire.pool" -}}
{{- mergeOverwrite (deepCopy .root.Values.workerDefaults) (deepCopy .pool) | toYaml -}}
{{- end -}}

{{/* Served name -> model, as YAML. */}}
{{- define "pagewire.models" -}}
{{- $models := dict -}}
{{- range .Values.workers -}}
{{- $_ := set $models (include "pagewire.servedName" .) .model -}}
{{- end -}}
{{- toYaml $models -}}
{{- end -}}

{{- define "pagewire.workerArgs" -}}
{{- $worker := .values -}}
- --scheduler={{ include "pagewire.schedulers" .root }}
- --listen=0.0.0.0:8300
- --advertise-address=$(POD_IP):8300
- {{ printf "--model=%s" $worker.model | quote }}
- {{ printf "--served-model-name=%s" (include "pagewire.servedName" $worker) | quote }}
- --device={{ eq $worker.device "gpu" | ternary "cuda" "cpu" }}
- --dtype={{ $worker.dtype }}
- --roles={{ join "," $worker.roles }}
- --kv-offload={{ .root.Values.kvstore.enabled | ternary $worker.kvOffload "off" }}
- --kv-transport={{ $worker.kvTransport }}
- --drain-seconds={{ $worker.drainSeconds }}
{{- with .root.Values.lora }}
{{- if .enabled }}
- --enable-lora
- --max-loras={{ int64 .maxLoras }}
- --max-lora-rank={{ int64 .maxLoraRank }}
{{- end }}
{{- end }}
{{- range $flag, $value := dict
    "max-model-len" $worker.maxModelLen
    "max-num-seqs" $worker.maxNumSeqs
    "max-num-batched-tokens" $worker.maxNumBatchedTokens
    "cpu-threads" $worker.cpuThreads }}
{{- with $value }}
- --{{ $flag }}={{ int64 . }}
{{- end }}
{{- end }}
{{- with $worker.kvCacheMemory }}
- --kv-cache-memory={{ . }}
{{- end }}
{{- with $worker.parallelism }}
{{- if gt (int .tensor) 1 }}
- --tensor-parallel-size={{ int .tensor }}
{{- end }}
{{- if gt (int .pipeline) 1 }}
- --pipeline-parallel-size={{ int .pipeline }}
{{- end }}
{{- if gt (int .hosts) 1 }}
- --distributed-executor-backend=env
- --rank-listen=$(POD_IP):8400
- --rank-key-file=/etc/pagewire/ranks/key
{{- if $.root.Values.tls.enabled }}
# The port of ranks has no TLS; the others have. Only pods of this pool reach it.
- --insecure
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A pod of a pool; on several hosts, each of them. */}}
{{- define "pagewire.workerPod" -}}
{{- $worker := .values -}}
{{- $isSpread := gt (int $worker.parallelism.hosts) 1 -}}
metadata:
  {{- include "pagewire.podMetadata" . | nindent 2 }}
spec:
  {{- include "pagewire.podSpec" . | nindent 2 }}
  terminationGracePeriodSeconds: {{ add $worker.drainSeconds 15 }}
  containers:
    - name: worker
      {{- include "pagewire.container" . | nindent 6 }}
      args:
        {{- include "pagewire.workerArgs" . | nindent 8 }}
        {{- include "pagewire.logArgs" .root | nindent 8 }}
        {{- range $worker.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        {{- include "pagewire.env" . | nindent 8 }}
      {{- $ports := dict "grpc" 8300 "metrics" 9090 }}
      {{- if $isSpread }}
      {{- $ports = merge $ports (dict "ranks" 8400) }}
      {{- end }}
      {{- include "pagewire.ports" $ports | nindent 6 }}
      {{- include "pagewire.grpcProbes" (merge (dict "port" 8300) .) | nindent 6 }}
      volumeMounts:
        {{- include "pagewire.volumeMounts" . | nindent 8 }}
        - name: shm
          mountPath: /dev/shm
        {{- if $isSpread }}
        - name: ranks
          mountPath: /etc/pagewire/ranks
          readOnly: true
        {{- end }}
  volumes:
    {{- include "pagewire.volumes" . | nindent 4 }}
    - name: shm
      emptyDir:
        medium: Memory
        sizeLimit: {{ $worker.shmSize }}
    {{- if $isSpread }}
    - name: ranks
      secret:
        secretName: {{ include "pagewire.rankKeySecret" .root }}
        items:
          - {key: {{ .root.Values.rankKey.key }}, path: key}
    {{- end }}
{{- end -}}
