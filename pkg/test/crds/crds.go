// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crds reads the CustomResourceDefinitions of other projects from the Go modules that
// hack/crds pins, so that annex is tested with real schemas.
//
// The files are read from the module archives that the go command downloads and verifies with
// go.sum. The go command does not unpack modules that require a newer Go than the installed one,
// but provides their archives.
package crds

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Source is a folder of CRDs in a module that hack/crds pins.
type Source struct {
	// Name of the source in tests.
	Name string
	// Module is the path of the module. Its version is in go.mod.
	Module string
	// Dir is the folder in the module, including its sub-folders.
	Dir string
}

// Sources returns all sources. The experimental channel of the Gateway API has newer versions of
// the CRDs of the standard channel.
func Sources() []Source {
	const gatewayAPI = "sigs.k8s.io/gateway-api"
	return []Source{
		{Name: "cert-manager", Module: "github.com/cert-manager/cert-manager", Dir: "deploy/crds"},
		{Name: "gateway-api", Module: gatewayAPI, Dir: "config/crd/standard"},
		{Name: "gateway-api-experimental", Module: gatewayAPI, Dir: "config/crd/experimental"},
		{Name: "prometheus-operator", Module: "github.com/prometheus-operator/prometheus-operator", Dir: "example/prometheus-operator-crd-full"},
		{Name: "kyverno", Module: "github.com/kyverno/kyverno", Dir: "config/crds"},
		{Name: "openreports", Module: "github.com/openreports/reports-api", Dir: "config/crd"},
	}
}

// Flux has the sources of Flux's CRDs, for which artifacts/deploy/gitops has objects.
func Flux() []Source {
	return []Source{
		{Name: "flux-helm", Module: "github.com/fluxcd/helm-controller", Dir: "config/crd/bases"},
		{Name: "flux-kustomize", Module: "github.com/fluxcd/kustomize-controller", Dir: "config/crd/bases"},
		{Name: "flux-source", Module: "github.com/fluxcd/source-controller", Dir: "config/crd/bases"},
	}
}

// Manifest is one CRD as its project publishes it.
type Manifest struct {
	// CRD is the decoded CRD.
	CRD *apiextensionsv1.CustomResourceDefinition
	// YAML is its source.
	YAML []byte
}

// LoadNamed is Load for the source with a name.
func LoadNamed(ctx context.Context, name string) ([]Manifest, error) {
	for _, source := range Sources() {
		if source.Name == name {
			return Load(ctx, source)
		}
	}
	return nil, fmt.Errorf("there is no source %q of CRDs", name)
}

// Load returns the CRDs of a source in the order of their file names, without other objects.
func Load(ctx context.Context, source Source) ([]Manifest, error) {
	archive, err := archiveOf(ctx, source.Module)
	if err != nil {
		return nil, fmt.Errorf("get the archive of module %s: %w", source.Module, err)
	}
	files, err := zip.OpenReader(archive.Zip)
	if err != nil {
		return nil, fmt.Errorf("open the archive of module %s: %w", source.Module, err)
	}
	defer files.Close()

	var manifests []Manifest
	prefix := archive.Path + "@" + archive.Version + "/" + source.Dir + "/"
	for _, file := range files.File {
		if !strings.HasPrefix(file.Name, prefix) || path.Ext(file.Name) != ".yaml" {
			continue
		}
		found, err := readManifests(file)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file.Name, err)
		}
		manifests = append(manifests, found...)
	}
	if len(manifests) == 0 {
		return nil, fmt.Errorf("no CRD under %s", prefix)
	}
	return manifests, nil
}

func readManifests(file *zip.File) ([]Manifest, error) {
	content, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer content.Close()

	var manifests []Manifest
	documents := utilyaml.NewYAMLReader(bufio.NewReader(content))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return manifests, nil
		}
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(document, crd); err != nil {
			return nil, err
		}
		if crd.Kind == "CustomResourceDefinition" {
			manifests = append(manifests, Manifest{CRD: crd, YAML: document})
		}
	}
}

// archive is the output of `go mod download -json` for a module.
type archive struct {
	Path, Version, Zip, Sum, Error string
}

var (
	archivesLock sync.Mutex
	archives     = map[string]archive{}
)

// archiveOf returns the downloaded and verified archive of a pinned module.
func archiveOf(ctx context.Context, module string) (archive, error) {
	archivesLock.Lock()
	defer archivesLock.Unlock()
	if known, ok := archives[module]; ok {
		return known, nil
	}

	dir, err := pinDir(ctx)
	if err != nil {
		return archive{}, err
	}
	version, err := pinnedVersion(ctx, dir, module)
	if err != nil {
		return archive{}, err
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return archive{}, err
	}

	// The command fails for a module that requires a newer Go, after it has downloaded and verified
	// the archive, so only its output matters.
	var downloaded archive
	output, runErr := goCommand(ctx, dir, "mod", "download", "-json", module+"@"+version)
	if err := json.Unmarshal(output, &downloaded); err != nil || downloaded.Zip == "" {
		return archive{}, fmt.Errorf("download %s@%s: %w %s", module, version, errors.Join(runErr, err), downloaded.Error)
	}
	// Modules that are not in go.sum are verified only by the checksum database, but tests need
	// pinned content.
	if pin := fmt.Sprintf("%s %s %s\n", module, version, downloaded.Sum); !bytes.Contains(sums, []byte(pin)) {
		return archive{}, fmt.Errorf("%s/go.sum lacks the line %q", dir, pin)
	}
	archives[module] = downloaded
	return downloaded, nil
}

// pinDir finds hack/crds from anywhere inside the repository.
func pinDir(ctx context.Context) (string, error) {
	output, err := goCommand(ctx, ".", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(strings.TrimSpace(string(output))), "hack", "crds"), nil
}

func pinnedVersion(ctx context.Context, dir, module string) (string, error) {
	output, err := goCommand(ctx, dir, "mod", "edit", "-json")
	if err != nil {
		return "", err
	}
	var pins struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(output, &pins); err != nil {
		return "", fmt.Errorf("read the requirements of %s: %w", dir, err)
	}
	for _, pin := range pins.Require {
		if pin.Path == module {
			return pin.Version, nil
		}
	}
	return "", fmt.Errorf("%s/go.mod does not require %s", dir, module)
}

// goCommand runs the go command with the installed toolchain, and does not download the one that
// a pinned module requires.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off")
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return output, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return output, nil
}
