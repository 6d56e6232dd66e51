// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/process"
)

// saw matches the demo's report on its clients: no request fails, and no write is lost.
const saw = `clients saw: writes acknowledged [1-9]\d*, requests failed 0, conflicts \d+, slowest write \d+\.\d s; of 400 objects with lost writes 0, with changed UID 0\n`

// TestDemo runs the demo, and checks its output.
func TestDemo(t *testing.T) {
	t.Parallel()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	command := exec.CommandContext(t.Context(), "go", "run", "./hack/demo", "demo", "--once")
	command.Dir = root
	began := time.Now()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	t.Logf("it took %.1f s", time.Since(began).Seconds())
	for _, want := range []string{
		`v1\.example\.com +Local +True`,
		`v1\.example\.com +annex-system/annex +True`,
		`v1alpha1\.hosting\.annex\.dev +annex-system/annex +True`,
		`widgets\.example\.com +default +Hosted +1 `,
		`annex-examples +first +green`,
		`in the main cluster's etcd: 0\n`,
		`in annex's etcd: 1\n  /annex/example\.com/widgets/annex-examples/first`,
		`(?s)annex move .*shop\.example\.com\n.*\] Completed\n.*annex-system/annex +True[^#]*` + saw,
		`(?s)annex rollback .*shop\.example\.com\n.*\] Completed\n.*Local +True[^#]*` + saw,
	} {
		if !regexp.MustCompile(want).Match(output) {
			t.Errorf("it does not show %s", want)
		}
	}
	if t.Failed() {
		t.Logf("it shows:\n%s", output)
	}
}
