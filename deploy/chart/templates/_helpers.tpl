{{- /*
Prints an object of `base/` or `components/`, with what depends on the release: its namespace, its labels, and the names of
cluster-scoped roles. Takes {root, object}, and {labels} for more of them.
*/ -}}
{{- define "trainyard.object" -}}
{{- $root := .root -}}
{{- $object := .object -}}
{{- $metadata := $object.metadata -}}
{{- $labels := include "trainyard.labels" $root | fromYaml -}}
{{- $_ := set $metadata "labels" (mergeOverwrite $labels (default dict $metadata.labels) (default dict .labels)) -}}
{{- range prepend (default list $object.subjects) $metadata -}}
{{- if eq (default "" .namespace) "trainyard-system" -}}
{{- $_ := set . "namespace" $root.Release.Namespace -}}
{{- end -}}
{{- end -}}
{{- if hasPrefix "ClusterRole" $object.kind -}}
{{- $_ := set $metadata "name" (include "trainyard.clusterName" (dict "root" $root "name" $metadata.name)) -}}
{{- end -}}
{{- with $object.roleRef -}}
{{- if eq .kind "ClusterRole" -}}
{{- $_ := set . "name" (include "trainyard.clusterName" (dict "root" $root "name" .name)) -}}
{{- end -}}
{{- end -}}
---
{{ toYaml $object }}
{{ end -}}

{{- /* Replaces the first part of a name. Takes {root, name}. */ -}}
{{- define "trainyard.clusterName" -}}
{{- printf "%s%s" .root.Values.rbac.clusterName (trimPrefix "trainyard" .name) -}}
{{- end -}}

{{- define "trainyard.labels" -}}
app.kubernetes.io/name: trainyard
app.kubernetes.io/part-of: trainyard
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* Reads a file with several objects. Takes {root, file}; prints {objects} as JSON. */ -}}
{{- define "trainyard.objects" -}}
{{- $objects := list -}}
{{- range regexSplit "(?m)^---$" (.root.Files.Get .file) -1 -}}
{{- with fromYaml . -}}
{{- $objects = append $objects . -}}
{{- end -}}
{{- end -}}
{{- dict "objects" $objects | toJson -}}
{{- end -}}
