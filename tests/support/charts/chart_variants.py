"""Releases of the chart that differ in what is switched on. Data only."""

from typing import Any

from support.charts.charts import VALUES_FILES, Release

BUILTIN: dict[str, Any] = {"name": "builtin", "model": "pagewire-builtin"}
# Every list of the same shape, with something in it.
EXTRAS: dict[str, Any] = {
    "extraEnv": [{"name": "EXTRA", "value": "1"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "podAnnotations": {"example.org/note": "x"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "x/rack", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "high",
}
AUTOSCALING: dict[str, Any] = {
    "enabled": True,
    "minReplicas": 1,
    "maxReplicas": 3,
    "metrics": [
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "n"},
                "target": {"type": "AverageValue", "averageValue": "4"},
            },
        }
    ],
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
}
ON: dict[str, Any] = {"enabled": True}

EVERYTHING: dict[str, Any] = {
    "commonLabels": {"team": "serving", "app.kubernetes.io/part-of": "more"},
    "podLabels": {"team": "other"},
    "podAnnotations": {"example.org/all": "y"},
    "imagePullSecrets": [{"name": "registry"}],
    "priorityClassName": "low",
    "image": {"registry": "registry.example.org/team", "tag": "1.2.3", "pullPolicy": "Always"},
    "extraEnv": [{"name": "EVERYWHERE", "value": "1"}],
    "extraObjects": [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "{{ .Release.Name }}-more"},
            "data": {"a": "b"},
        },
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: text}\ndata: {a: '{{ .Chart.Name }}'}",
    ],
    "apiKeys": {"lines": ["team-a=key-one", "sha256:" + "0" * 64]},
    "hubToken": {"value": "hf_secret"},
    "modelVolume": {"create": True, "storageClassName": "shared"},
    "frontend": {
        **EXTRAS,
        "autoscaling": AUTOSCALING,
        "extraArgs": ["--max-waiting=10"],
        "toolCallParsers": ["large=hermes"],
        "reasoningParsers": ["large=deepseek_r1"],
        "sessionAffinity": "ClientIP",
        "service": {"type": "LoadBalancer", "httpPort": 80, "annotations": {"a": "b"}},
    },
    "scheduler": {**EXTRAS, "replicas": 2, "extraArgs": ["--max-num-waiting=100"]},
    "workers": [
        {
            **EXTRAS,
            "name": "large",
            "model": "org/model",
            "servedModelName": "large",
            "device": "gpu",
            "dtype": "bfloat16",
            "maxModelLen": 1048576,
            "maxNumSeqs": 128,
            "maxNumBatchedTokens": 4096,
            "kvCacheMemory": "20GiB",
            "runtimeClassName": "nvidia",
            "updateStrategy": {"type": "Recreate"},
            "autoscaling": AUTOSCALING,
            "extraArgs": ["--seed=1"],
        },
        {"name": "small", "model": "/models/small", "keda": {**ON, "serverAddress": "http://p:9"}},
        {"name": "small-2", "model": "/models/small", "roles": ["decode"], "replicas": 2},
    ],
    "kvstore": {
        **EXTRAS,
        "replicas": 3,
        "disk": {**ON, "storageClassName": "fast"},
        "adapterBytes": "4GiB",
        "tenants": ["team-a=1GiB"],
        "extraArgs": ["--stall-seconds=5"],
    },
    "lora": ON,
    "kvEvents": {
        **ON,
        "insecure": True,
        "from": [{"namespaceSelector": {"matchLabels": {"routers": "yes"}}}],
        "config": {"topic": "kv@pagewire:8000@{model}", "stores": False},
    },
    "redis": {**ON, "nodeSelector": {"a": "b"}},
    "networkPolicy": {"frontendFrom": [{"namespaceSelector": {"matchLabels": {"web": "yes"}}}]},
    "metrics": {"annotations": True, "podMonitor": ON, "prometheusRule": ON, "dashboard": ON},
    "ingress": {**ON, "className": "nginx", "tls": [{"hosts": ["a"], "secretName": "tls"}]},
    "grpcIngress": ON,
    "httpRoute": {
        **ON,
        "parentRefs": [{"name": "gateway"}],
        "hostnames": ["llm.example.org"],
        "requestTimeout": "1h",
    },
    "inferencePool": {**ON, "endpointPicker": {"name": "picker"}},
}

BARE: dict[str, Any] = {
    "tls": {"enabled": False},
    "serviceAccount": {"create": False},
    "kvstore": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "frontend": {"podDisruptionBudget": {"enabled": False}, "preStopSeconds": 0, "drainSeconds": 0},
    "workerDefaults": {"podDisruptionBudget": {"enabled": False}, "drainSeconds": 0},
}

ELSEWHERE: dict[str, Any] = {
    "apiKeys": {"existingSecret": "keys", "key": "file"},
    "hubToken": {"existingSecret": "hub"},
    "modelVolume": {"existingClaim": "models", "readOnly": True},
    "redis": {"existingSecret": "redis"},
    "kvEvents": {**ON, "curveSecret": "kv-events", "port": 6557},
    "helmTest": {"apiKeySecret": "test-key", "model": "pagewire-builtin"},
    "httpRoute": {**ON, "parentRefs": [{"name": "gateway"}]},
}

TLS: dict[str, Any] = {
    "tls": {**ON, "issuerRef": {"name": "ours", "kind": "Issuer"}, "secrets": {"worker": "mine"}},
}

VARIANTS: dict[str, Release] = {
    "default": Release(),
    **{path.stem: Release(files=[path]) for path in VALUES_FILES},
    "everything": Release(EVERYTHING),
    "bare": Release(BARE),
    "elsewhere": Release(ELSEWHERE),
    "group": Release({"frontend": {"group": ON, "replicas": 3}}),
    "scaled-group": Release({"frontend": {"group": ON, "autoscaling": {**ON, "maxReplicas": 4}}}),
    "tls": Release(TLS),
    "metrics-tls": Release(
        {"metrics": {"tls": True, "tokenSecret": "readers", "annotations": True, "podMonitor": ON}}
    ),
    "public-tls": Release({"frontend": {"tlsSecret": "public"}}),
    "hosts": Release(
        {
            "workers": [
                {**BUILTIN, "parallelism": {"tensor": 2, "pipeline": 2, "hosts": 2}},
                {**BUILTIN, "name": "beside", "parallelism": {"tensor": 2}},
            ]
        }
    ),
    "hosts-bare": Release(
        {
            "tls": {"enabled": False},
            "rankKey": {"existingSecret": "ours", "key": "rank"},
            "workers": [{**BUILTIN, "parallelism": {"pipeline": 3, "hosts": 3}}],
        }
    ),
    "oldest": Release(flags=["--kube-version", "1.27.0"]),
    "long-name": Release({"workers": [{**BUILTIN, "name": "a" * 20}]}, name="r" * 53),
    "own-name": Release({"fullnameOverride": "mine", "nameOverride": "other"}),
}
