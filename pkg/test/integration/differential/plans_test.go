// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/random"
)

// TestPlans sends random writes to an unmodified apiextensions-apiserver, and compares what it stores with what package plan
// computes. A plan that is unsure is compared with nothing.
func TestPlans(t *testing.T) {
	t.Parallel()
	run := random.Start(t, 10)
	p := newPair(t)
	p.startUpstream(t)
	serveLevers(t, p.upstream)
	planner := &planner{server: p.upstream, writer: newWriter(run.Rand(0)), outcomes: map[string]int{}}
	for n := 0; run.Next() && !t.Failed(); n++ {
		maximum := []int{100, 60}[n%2]
		tighten(t, maximum, p.upstream)
		crd := levers(t, maximum)
		crd.Status.AcceptedNames = crd.Spec.Names
		planner.round(t, crd, fmt.Sprintf("lever-%d", n))
	}
	t.Logf("outcomes: %v", planner.outcomes)
	if planner.outcomes["planned"] == 0 || planner.outcomes["create: planned"] == 0 {
		t.Error("no write was planned")
	}
}

type planner struct {
	*server
	writer
	outcomes map[string]int
}

// round creates an object and writes to it.
func (p *planner) round(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition, name string) {
	t.Helper()
	schema, err := plan.NewSchema(crd, "v1")
	expect.NoError(t, err)
	p.create(t, schema, "")
	for !p.create(t, schema, name) {
		// the next one may be valid
	}
	for n := range 40 {
		if n == 25 {
			p.deleteLever(t, name)
		}
		current := p.getLever(t, name)
		if current == "" {
			return // a write has removed the last finalizer
		}
		w := p.next(t, name, current)
		now := time.Now()
		planned, err := plannedBy(t, schema, current, w, now)
		var unsure plan.Unsure
		if err != nil && !errors.As(err, &unsure) {
			t.Errorf("plan %+v: %v", w, err)
		}
		later, _ := plannedBy(t, schema, current, w, now.Add(time.Second))
		answer := p.write(t, w)
		if w.isApply() {
			p.outcomes["apply: "+outcome(err)]++
		} else {
			p.outcomes[outcome(err)]++
		}
		if err != nil {
			continue
		}
		stored := p.getLever(t, name)
		if planned.Deletes && stored == "" {
			stored = answer.body
		}
		if stored = masked(stored); answer.code != http.StatusOK || answer.warnings != "" || stored != masked(string(planned.Data)) && stored != masked(string(later.Data)) {
			t.Fatalf("%+v\nof        %s\nis stored %s\nplanned   %s\n%+v", w, current, stored, masked(string(planned.Data)), answer)
		}
	}
}

// create creates an object, and reports whether the server has accepted it.
func (p *planner) create(t *testing.T, schema *plan.Schema, name string) bool {
	t.Helper()
	w := p.writer.create(t, name)
	answer := p.write(t, w)
	var object metav1.PartialObjectMetadata
	expect.NoError(t, json.Unmarshal([]byte(answer.body), &object))
	planned, err := schema.Create(t.Context(), plan.Write{Body: []byte(w.body), Manager: w.manager}, "default", object.UID, object.CreationTimestamp.Time)
	p.outcomes["create: "+outcome(err)]++
	created := answer.code == http.StatusCreated
	if err != nil {
		return created
	}
	if stored := p.getLever(t, object.Name); !created || answer.warnings != "" || masked(stored) != masked(string(planned.Data)) {
		t.Fatalf("%+v\nis stored %s\nplanned   %s\n%+v", w, masked(stored), masked(string(planned.Data)), answer)
	}
	return true
}

func outcome(err error) string {
	if err == nil {
		return "planned"
	}
	return err.Error()
}

func plannedBy(t *testing.T, schema *plan.Schema, current string, w write, now time.Time) (*plan.Planned, error) {
	t.Helper()
	return schema.Plan(t.Context(), []byte(current), plan.Write{
		Body: []byte(w.body), Patch: w.contentType == string(types.MergePatchType), Apply: w.isApply(), Force: w.force,
		Status: w.status, Manager: w.manager,
	}, now)
}

// generatedName matches the names that the server generates for random creations.
const generatedName = `made-[a-z0-9]{5,}`

var (
	madeName    = regexp.MustCompile(generatedName)
	managedTime = regexp.MustCompile(`"time":"[^"]*"`)
	ownVersion  = regexp.MustCompile(`"resourceVersion":"\d+",?`)
)

// masked removes what differs between a plan and what is stored for it.
func masked(object string) string {
	return madeName.ReplaceAllString(managedTime.ReplaceAllString(ownVersion.ReplaceAllString(object, ""), `"time":""`), "")
}

// write sends a random write.
func (s *server) write(t *testing.T, w write) answer {
	t.Helper()
	found, err := s.tryWrite(t.Context(), w)
	expect.NoError(t, err)
	return found
}

func (s *server) tryWrite(ctx context.Context, w write) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, w.method, s.url+w.path, strings.NewReader(w.body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", w.contentType)
	req.Header.Set("User-Agent", "test")
	response, err := s.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return answer{
		code: response.StatusCode, contentType: response.Header.Get("Content-Type"), warnings: strings.Join(response.Header.Values("Warning"), ";"),
		body: string(content),
	}, err
}
