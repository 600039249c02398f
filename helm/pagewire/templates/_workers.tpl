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
{{- end -}}
