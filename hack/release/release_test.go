// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"sigs.k8s.io/yaml"
)

// written writes a release whose binaries are this test, for some platforms.
func written(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(must(os.Executable()))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "dist")
	r := release{
		source: filepath.Join("..", ".."), out: out, version: "v1.2.3-rc.1", commit: "0123abc", time: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC),
	}
	err = r.whole(func(dir, scratch string) error {
		var binaries []binary
		for _, p := range []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}} {
			b := binary{p, filepath.Join(scratch, p.architecture, p.program())}
			if err := errors.Join(os.MkdirAll(filepath.Dir(b.path), 0o700), os.WriteFile(b.path, program, 0o700)); err != nil {
				return err
			}
			binaries = append(binaries, b)
		}
		return r.writeAll(dir, scratch, binaries)
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var names = []string{
	"SHA256SUMS", "annex-1.2.3-rc.1.tgz", "annex.yaml", "annex_v1.2.3-rc.1_image.tar",
	"annex_v1.2.3-rc.1_linux_amd64.cdx.json", "annex_v1.2.3-rc.1_linux_amd64.tar.gz",
	"annex_v1.2.3-rc.1_linux_arm64.cdx.json", "annex_v1.2.3-rc.1_linux_arm64.tar.gz",
	"annex_v1.2.3-rc.1_windows_amd64.cdx.json", "annex_v1.2.3-rc.1_windows_amd64.zip",
}

func TestRelease(t *testing.T) {
	t.Parallel()
	dir := written(t)
	for name, test := range map[string]func(t *testing.T, dir string){
		"reproducible": wantReproduced, "archives": wantArchives, "image": wantImage, "SBOM": wantSBOM, "krew manifest": wantKrewManifest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, dir)
		})
	}
}

// wantReproduced writes the release again, into another folder and in another second.
func wantReproduced(t *testing.T, first string) {
	t.Helper()
	for start := time.Now().Unix(); time.Now().Unix() == start; {
		time.Sleep(10 * time.Millisecond)
	}
	second := written(t)
	if got := namesIn(t, first); !slices.Equal(got, names) {
		t.Errorf("got %q, want %q", got, names)
	}
	for _, name := range names {
		if !bytes.Equal(read(t, first, name), read(t, second, name)) {
			t.Errorf("%s differs", name)
		}
	}
	sums := string(read(t, first, "SHA256SUMS"))
	for _, name := range names[1:] {
		if want := must(checksum(filepath.Join(first, name))) + "  " + name + "\n"; !strings.Contains(sums, want) {
			t.Errorf("%s has not %q", sums, want)
		}
	}
}

func wantArchives(t *testing.T, dir string) {
	t.Helper()
	want := "-rw-r--r-- LICENSE, -rwxr-xr-x annex, -rwxr-xr-x kubectl_complete-annex"
	if got := listTarGz(t, read(t, dir, "annex_v1.2.3-rc.1_linux_arm64.tar.gz")); got != want {
		t.Errorf("the archive has %s, want %s", got, want)
	}
	path := t.TempDir()
	script := entriesOf(t, read(t, dir, "annex_v1.2.3-rc.1_linux_arm64.tar.gz"))["kubectl_complete-annex"]
	err := errors.Join(os.WriteFile(filepath.Join(path, "kubectl_complete-annex"), script, 0o700),
		os.WriteFile(filepath.Join(path, "kubectl-annex"), []byte("#!/bin/sh\nprintf '<%s>' \"$@\"\n"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	complete := exec.CommandContext(t.Context(), filepath.Join(path, "kubectl_complete-annex"), "move", "")
	complete.Env = []string{"PATH=" + path}
	if got, err := complete.CombinedOutput(); err != nil || string(got) != "<__complete><move><>" {
		t.Errorf("the completion runs %q: %v", got, err)
	}
	archive := must(zip.OpenReader(filepath.Join(dir, "annex_v1.2.3-rc.1_windows_amd64.zip")))
	defer archive.Close()
	if got := archive.File[1].Name; len(archive.File) != 2 || got != "annex.exe" {
		t.Errorf("the archive for Windows has %q", got)
	}
	var chart struct{ Version, AppVersion, Name string }
	packaged := entriesOf(t, read(t, dir, "annex-1.2.3-rc.1.tgz"))
	if err := yaml.Unmarshal(packaged["annex/Chart.yaml"], &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Version != "1.2.3-rc.1" || chart.AppVersion != "v1.2.3-rc.1" || chart.Name != "annex" || packaged["annex/values.schema.json"] == nil {
		t.Errorf("the chart is %+v", chart)
	}
}

func wantImage(t *testing.T, dir string) {
	t.Helper()
	extracted := t.TempDir()
	for name, data := range tarEntries(t, bytes.NewReader(read(t, dir, "annex_v1.2.3-rc.1_image.tar"))) {
		path := filepath.Join(extracted, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	outer := must(must(layout.ImageIndexFromPath(extracted)).IndexManifest())
	if got := outer.Manifests[0].Annotations["io.containerd.image.name"]; got != "ghcr.io/annex-dev/annex:v1.2.3-rc.1" {
		t.Errorf("the image is imported as %q", got)
	}
	index := must(must(layout.ImageIndexFromPath(extracted)).ImageIndex(outer.Manifests[0].Digest))
	var architectures []string
	for _, found := range must(index.IndexManifest()).Manifests {
		architectures = append(architectures, found.Platform.Architecture)
		image := must(index.Image(found.Digest))
		config := must(image.ConfigFile())
		if config.Config.User != "65532:65532" || config.Architecture != found.Platform.Architecture || config.Config.Labels["org.opencontainers.image.revision"] != "0123abc" {
			t.Errorf("the image is configured as %+v", config)
		}
		files := tarEntries(t, mutate.Extract(image))
		if len(files) != 2 || !bytes.Equal(files["annex"], must(os.ReadFile(must(os.Executable())))) || bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN")) < 50 {
			t.Errorf("the image has %d files", len(files))
		}
	}
	if got := fmt.Sprint(architectures); got != "[amd64 arm64]" {
		t.Errorf("the image is for %s", got)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
}

// wantSBOM finds a module that this test is built from, and the version of the release.
func wantSBOM(t *testing.T, dir string) {
	t.Helper()
	var bom struct {
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name string }
	}
	if err := json.Unmarshal(read(t, dir, "annex_v1.2.3-rc.1_linux_amd64.cdx.json"), &bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Component.Version != "v1.2.3-rc.1" {
		t.Errorf("the SBOM is of version %q", bom.Metadata.Component.Version)
	}
	for _, name := range []string{"std", "github.com/google/go-containerregistry"} {
		if !slices.ContainsFunc(bom.Components, func(c struct{ Name string }) bool { return c.Name == name }) {
			t.Errorf("the SBOM has not %s", name)
		}
	}
}

func wantKrewManifest(t *testing.T, dir string) {
	t.Helper()
	var plugin krewPlugin
	if err := yaml.UnmarshalStrict(read(t, dir, "annex.yaml"), &plugin); err != nil {
		t.Fatal(err)
	}
	if len(plugin.Spec.ShortDescription) > 50 {
		t.Errorf("krew's table cuts %q", plugin.Spec.ShortDescription)
	}
	if want := "ln -s kubectl-annex \"${KREW_ROOT:-$HOME/.krew}/bin/kubectl_complete-annex\""; !strings.Contains(plugin.Spec.Caveats, want) {
		t.Errorf("the caveats are %q, want %q", plugin.Spec.Caveats, want)
	}
	for _, p := range plugin.Spec.Platforms {
		if got := must(checksum(filepath.Join(dir, filepath.Base(p.URI)))); got != p.SHA256 {
			t.Errorf("%s has the checksum %s, want %s", p.URI, p.SHA256, got)
		}
	}
	if got := plugin.Spec.Platforms[2]; got.Bin != "annex.exe" || got.Selector["matchLabels"]["os"] != "windows" {
		t.Errorf("the platform for Windows is %+v", got)
	}
}

// TestBadInput leaves no folder behind.
func TestBadInput(t *testing.T) {
	t.Parallel()
	there := t.TempDir()
	for name, args := range map[string][]string{
		"no version":           {"--out", filepath.Join(there, "a")},
		"build metadata":       {"--out", filepath.Join(there, "a"), "--version", "v1.0.0+x"},
		"no folder":            {"--version", "v1.0.0"},
		"a folder that exists": {"--version", "v1.0.0", "--out", there},
		"no source":            {"--version", "v1.0.0", "--out", filepath.Join(there, "a"), "--source", there},
	} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if got := namesIn(t, there); len(got) > 0 {
		t.Errorf("%q are left", got)
	}
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func listTarGz(t *testing.T, data []byte) string {
	t.Helper()
	var list []string
	archive := tar.NewReader(must(gzip.NewReader(bytes.NewReader(data))))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(list, ", ")
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, header.FileInfo().Mode().String()+" "+header.Name)
	}
}

func entriesOf(t *testing.T, compressed []byte) map[string][]byte {
	t.Helper()
	return tarEntries(t, must(gzip.NewReader(bytes.NewReader(compressed))))
}

func tarEntries(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBuild builds a program with paths that are relative to the current folder, and an image with the name in the quick start.
func TestBuild(t *testing.T) {
	page := read(t, "../../docs", "gitops.md")
	t.Chdir(t.TempDir())
	program := "package main\n\nvar version string\n\nfunc main() { println(version) }\n"
	err := errors.Join(os.Mkdir("source", 0o700), os.WriteFile("source/go.mod", []byte("module example.com/annex\n\ngo 1.26.0\n"), 0o600),
		os.WriteFile("source/main.go", []byte(program), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{"--source=source", "--out=dist", "--version=v0.1.0", "--ldflags=-s -X main.version=v0.1.0", "--image-of=arm64"}); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, "dist"); len(got) != 1 || bytes.Count(page, []byte(" bin/image/"+got[0]+"\n")) != 2 {
		t.Errorf("docs/gitops.md does not load %q in kind and k3d", got)
	}
	if got := namesIn(t, "."); !slices.Equal(got, []string{"dist", "source"}) {
		t.Errorf("%q are left", got)
	}
}
