{{/* Names, labels and images. */}}

{{- define "pagewire.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* What every object's name begins with. At most 34 characters, so that "-worker-" and the name of a
pool still fit in the 63 of a label; a longer one ends in a digest, since two may begin alike. */}}
{{- define "pagewire.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if contains $name .Release.Name -}}{{- $full = .Release.Name -}}{{- end -}}
{{- $full = default $full .Values.fullnameOverride | trimSuffix "-" -}}
{{- if gt (len $full) 34 -}}
{{- printf "%s-%s" ($full | trunc 25 | trimSuffix "-") (sha256sum $full | trunc 8) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}

{{/* Labels by which pods are selected; they never change. Takes root, component and, for workers, pool. */}}
{{- define "pagewire.selector" -}}
app.kubernetes.io/name: {{ include "pagewire.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .pool }}
pagewire/pool: {{ . }}
{{- end }}
{{- end -}}

{{/* Of pods: what changes with the chart alone does not start them again. */}}
{{- define "pagewire.podLabels" -}}
{{- $own := merge (include "pagewire.selector" . | fromYaml) (dict
    "app.kubernetes.io/part-of" "pagewire"
    "app.kubernetes.io/version" .root.Chart.AppVersion) -}}
{{- merge $own .root.Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "pagewire.labels" -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" -}}
{{- merge (include "pagewire.podLabels" . | fromYaml) (dict
    "app.kubernetes.io/managed-by" .root.Release.Service
    "helm.sh/chart" $chart) | toYaml -}}
{{- end -}}

{{/* Takes root and image. */}}
{{- define "pagewire.image" -}}
{{- $registry := default .root.Values.image.registry .image.registry -}}
{{- $name := .image.repository -}}
{{- if $registry -}}{{- $name = printf "%s/%s" (trimSuffix "/" $registry) $name -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (coalesce .image.tag .root.Values.image.tag .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "pagewire.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pagewire.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Names of Secrets and claims that are either given or made here; empty where there is none. */}}
{{- define "pagewire.apiKeySecret" -}}
{{- if .Values.apiKeys.existingSecret -}}
{{- .Values.apiKeys.existingSecret -}}
{{- else if .Values.apiKeys.lines -}}
{{- printf "%s-api-keys" (include "pagewire.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "pagewire.hubTokenSecret" -}}
{{- if .Values.hubToken.existingSecret -}}
{{- .Values.hubToken.existingSecret -}}
{{- else if .Values.hubToken.value -}}
{{- printf "%s-hub-token" (include "pagewire.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* The key that hosts of ranks prove to each other. */}}
{{- define "pagewire.rankKeySecret" -}}
{{- default (printf "%s-rank-key" (include "pagewire.fullname" .)) .Values.rankKey.existingSecret -}}
{{- end -}}

{{/* "yes" if a pool has ranks on several hosts. */}}
{{- define "pagewire.hasHosts" -}}
{{- range $pool := .Values.workers -}}
{{- $worker := include "pagewire.pool" (dict "root" $ "pool" $pool) | fromYaml -}}
{{- if gt (int $worker.parallelism.hosts) 1 -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{- define "pagewire.modelClaim" -}}
{{- if .Values.modelVolume.existingClaim -}}
{{- .Values.modelVolume.existingClaim -}}
{{- else if .Values.modelVolume.create -}}
{{- printf "%s-models" (include "pagewire.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* The name in the API of a pool's model: that given, the last part of a path, or the hub's id. */}}
{{- define "pagewire.servedName" -}}
{{- if .servedModelName -}}
{{- .servedModelName -}}
{{- else if hasPrefix "/" .model -}}
{{- base .model -}}
{{- else -}}
{{- .model -}}
{{- end -}}
{{- end -}}

{{/* Where frontends and workers find the scheduler, or both of a pair. */}}
{{- define "pagewire.schedulers" -}}
{{- $name := printf "%s-scheduler" (include "pagewire.fullname" .) -}}
{{- if gt (int .Values.scheduler.replicas) 1 -}}
{{ $name }}-0.{{ $name }}:8100+{{ $name }}-1.{{ $name }}:8100
{{- else -}}
{{ $name }}:8100
{{- end -}}
{{- end -}}
