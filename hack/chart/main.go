// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart generates the templates of artifacts/chart from the manifests in
// artifacts/deploy. In the manifests
//
//	#+ text        is a line of the chart only
//	key: value #= text  is a line whose value is text in the chart; if the value
//	               is a block below the key, text stands for the block
//
// and the namespace annex-system is the release's namespace. Labels of an object that contain its name get the release's
// labels too; selectors stay as they are, so that the chart can take over what kustomize installed.
//
// It also generates the table of values in the chart's README.md from the comments of values.yaml.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sources maps manifests in artifacts/deploy to templates. The namespace is not among them:
// Helm creates it.
var sources = []struct{ manifest, template string }{
	{"base/serviceaccount.yaml", "serviceaccount.yaml"},
	{"base/rbac.yaml", "rbac.yaml"},
	{"base/service.yaml", "service.yaml"},
	{"base/statefulset.yaml", "statefulset.yaml"},
	{"base/poddisruptionbudget.yaml", "poddisruptionbudget.yaml"},
	{"base/networkpolicy.yaml", "networkpolicy.yaml"},
	{"overlays/external-etcd/deployment.yaml", "deployment.yaml"},
	{"components/servicemonitor/servicemonitor.yaml", "servicemonitor.yaml"},
	{"components/servicemonitor/rbac.yaml", "servicemonitor-rbac.yaml"},
	{"components/prometheusrule/prometheusrule.yaml", "prometheusrule.yaml"},
	{"hooks/pre-delete.yaml", "pre-delete.yaml"},
	{"hooks/test.yaml", "test.yaml"},
	{"injector/rbac.yaml", "injector-rbac.yaml"},
	{"injector/service.yaml", "injector-service.yaml"},
	{"injector/deployment.yaml", "injector-deployment.yaml"},
	{"injector/networkpolicy.yaml", "injector-networkpolicy.yaml"},
	{"injector/webhook.yaml", "injector-webhook.yaml"},
}

func main() {
	deploy := flag.String("deploy", "artifacts/deploy", "The folder with the manifests.")
	chart := flag.String("chart", "artifacts/chart", "The folder of the chart. Its templates/generated is replaced.")
	flag.Parse()
	err := generate(*deploy, filepath.Join(*chart, "templates", "generated"))
	if err == nil {
		err = document(*chart)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func generate(deploy, templates string) error {
	if err := os.RemoveAll(templates); err != nil {
		return fmt.Errorf("remove the old templates: %w", err)
	}
	if err := os.MkdirAll(templates, 0o755); err != nil {
		return fmt.Errorf("make the folder of the templates: %w", err)
	}
	for _, source := range sources {
		manifest, err := os.ReadFile(filepath.Join(deploy, source.manifest))
		if err != nil {
			return fmt.Errorf("read a manifest: %w", err)
		}
		template, err := convert(string(manifest))
		if err != nil {
			return fmt.Errorf("%s: %w", source.manifest, err)
		}
		if err := os.WriteFile(filepath.Join(templates, source.template), []byte(template), 0o644); err != nil {
			return fmt.Errorf("write a template: %w", err)
		}
	}
	return nil
}

// convert converts a manifest to a template.
func convert(manifest string) (string, error) {
	var out strings.Builder
	replaced := -1 // the indentation of the key whose block is left out
	previous := ""
	for number, line := range strings.Split(strings.TrimSuffix(manifest, "\n"), "\n") {
		text := strings.TrimLeft(line, " ")
		indent := len(line) - len(text)
		if replaced >= 0 && (indent > replaced || text == "" || indent == replaced && strings.HasPrefix(text, "- ")) {
			continue
		}
		replaced = -1
		switch value, expression, found := strings.Cut(text, " #= "); {
		case strings.HasPrefix(text, "#+ "):
			text = strings.TrimPrefix(text, "#+ ")
		case found && strings.HasSuffix(value, ":"):
			text, replaced = value+" "+expression, indent
		case found:
			key, err := keyOf(value)
			if err != nil {
				return "", fmt.Errorf("line %d: %w", number+1, err)
			}
			text = key + expression
		default:
			text = strings.ReplaceAll(text, "{{", `{{ "{{" }}`) // Prometheus' templates
		}
		out.WriteString(strings.Repeat(" ", indent) + strings.ReplaceAll(text, "annex-system", "{{ .Release.Namespace }}") + "\n")
		if previous == "labels:" && strings.HasPrefix(text, "app.kubernetes.io/name: ") {
			fmt.Fprintf(&out, "%s{{- include \"annex.labels\" . | nindent %d }}\n", strings.Repeat(" ", indent), indent)
		}
		previous = text
	}
	return out.String(), nil
}

// keyOf is a line of YAML up to its value: "key: " of a map, "- " of a list.
func keyOf(line string) (string, error) {
	if strings.HasPrefix(line, "- ") && !strings.Contains(line, ": ") {
		return "- ", nil
	}
	key, _, found := strings.Cut(line, ": ")
	if !found {
		return "", fmt.Errorf("%q has a #= but neither a key nor a list item in front of it", line)
	}
	return key + ": ", nil
}
