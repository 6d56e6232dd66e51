// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/rs/zerolog"
	"sigs.k8s.io/yaml"
)

// writeSBOM lists the modules that a binary was built from, by what Go records in it.
func (r *release) writeSBOM(dir string, b binary) error {
	generator, err := bin.NewGenerator(b.path, bin.WithIncludeStdlib(true), bin.WithVersionOverride(r.version), bin.WithLogger(zerolog.Nop()))
	if err != nil {
		return err
	}
	bom, err := generator.Generate()
	if err != nil {
		return fmt.Errorf("list the modules of annex for %s/%s: %w", b.os, b.architecture, err)
	}
	return create(filepath.Join(dir, r.baseName(b.platform)+".cdx.json"), func(w io.Writer) error {
		return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

// chartVersions are the lines of Chart.yaml that a release sets.
var chartVersions = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// writeChart packages artifacts/chart, as helm package does.
func (r *release) writeChart(dir string) error {
	files, err := readFolder(filepath.Join(r.source, "artifacts", "chart"), "annex")
	if err != nil {
		return err
	}
	number := strings.TrimPrefix(r.version, "v")
	for i, f := range files {
		if f.name == "annex/Chart.yaml" {
			lines := map[string]string{"version": number, "appVersion": r.version}
			files[i].data = chartVersions.ReplaceAllFunc(f.data, func(line []byte) []byte {
				key, _, _ := strings.Cut(string(line), ":")
				return fmt.Appendf(nil, "%s: %s", key, lines[key])
			})
			files[0], files[i] = files[i], files[0] // readers of the metadata need only the beginning
		}
	}
	return create(filepath.Join(dir, "annex-"+number+".tgz"), func(w io.Writer) error { return writeTarGz(w, r.time, files) })
}

const downloads = "https://github.com/annex-dev/annex/releases/download/"

type (
	krewPlugin struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]string `json:"metadata"`
		Spec       krewSpec          `json:"spec"`
	}
	krewSpec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Caveats          string         `json:"caveats"`
		Platforms        []krewPlatform `json:"platforms"`
	}
	krewPlatform struct {
		Selector map[string]map[string]string `json:"selector"`
		URI      string                       `json:"uri"`
		SHA256   string                       `json:"sha256"`
		Bin      string                       `json:"bin"`
	}
)

// writeKrewManifest describes the plugin kubectl annex for https://krew.sigs.k8s.io.
func (r *release) writeKrewManifest(dir string, binaries []binary) error {
	plugin := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "annex"},
		Spec: krewSpec{
			Version: r.version, Homepage: "https://github.com/annex-dev/annex",
			ShortDescription: "Move custom resources out of the cluster's etcd",
			Description: "annex serves custom resources from stores of its own, behind the cluster's own endpoint.\n" +
				"The plugin diagnoses a cluster, moves groups of resources into annex and back, and\nshows what annex serves and which problems it has.\n",
			// krew links one program of a plugin only.
			Caveats: "kubectl completes the plugin's arguments after, on Linux and macOS:\n" +
				"  ln -s kubectl-annex \"${KREW_ROOT:-$HOME/.krew}/bin/kubectl_complete-annex\"\n",
		},
	}
	for _, b := range binaries {
		name := r.archiveName(b.platform)
		sum, err := checksum(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, krewPlatform{
			Selector: map[string]map[string]string{"matchLabels": {"os": b.os, "arch": b.architecture}},
			URI:      downloads + r.version + "/" + name, SHA256: sum, Bin: b.program(),
		})
	}
	manifest, err := yaml.Marshal(plugin)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "annex.yaml"), manifest, 0o644)
}

// checksumsName is a file for sha256sum --check.
const checksumsName = "SHA256SUMS"

func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir) // in the order of names
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, entry := range entries {
		sum, err := checksum(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, entry.Name())
	}
	return os.WriteFile(filepath.Join(dir, checksumsName), []byte(lines.String()), 0o644)
}

func checksum(path string) (string, error) {
	opened, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer opened.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, opened)
	return fmt.Sprintf("%x", hash.Sum(nil)), err
}
