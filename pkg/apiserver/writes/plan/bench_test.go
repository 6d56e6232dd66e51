// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"
)

// listOf returns n values, separated by commas.
func listOf(n int, format string) string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(values, ",")
}

// BenchmarkPlanOfMany plans writes of objects with many fields of a kind, which a client chooses. Time grows in proportion to
// their number.
func BenchmarkPlanOfMany(b *testing.B) {
	s, err := NewSchema(gadgets(b, gadgetSchema), "v1")
	if err != nil || s == nil {
		b.Fatal(err)
	}
	for name, of := range map[string]func(n int) (current string, w Write){
		"finalizers": func(n int) (string, Write) {
			list := listOf(n, `"a/f%d"`)
			return gadgetWith(`"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":[` + list + `],`),
				patch(`{"metadata":{"finalizers":[` + list + `]},"spec":{"size":2}}`)
		},
		"owners": func(n int) (string, Write) {
			return gadgetWith(""), patch(`{"metadata":{"ownerReferences":[` + listOf(n, `{"apiVersion":"v1","kind":"A","name":"a","uid":"%d"}`) + `]}}`)
		},
		"annotations": func(n int) (string, Write) {
			return gadgetWith(""), patch(`{"metadata":{"annotations":{` + listOf(n, `"a%d":"b"`) + `}}}`)
		},
		"new keys": func(n int) (string, Write) {
			return gadgetWith(""), patch(`{"spec":{"flags":{` + listOf(n, `"a%d":true`) + `}}}`)
		},
		"items": func(n int) (string, Write) {
			return strings.Replace(gadgetWith(""), `"spec":{`, `"spec":{"tags":[`+listOf(n, `"%d"`)+`],`, 1), patch(`{"spec":{"tags":[` + listOf(n, `"b%d"`) + `]}}`)
		},
		"applied again": func(n int) (string, Write) {
			fields := `{"f:spec":{"f:flags":{` + listOf(n, `"f:a%06d":{}`) + `}}}`
			managed := managedFields(`"me" Apply 01 ` + fields)
			return storedGadget(`{"flags":{`+listOf(n, `"a%06d":true`)+`}}`, managed),
				Write{Body: []byte(config(`{"flags":{` + listOf(n, `"a%06d":false`) + `,"b":true}}`)), Apply: true, Manager: "me"}
		},
	} {
		for _, n := range []int{1000, 4000, 16000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				current, w := of(n)
				var err error
				for b.Loop() {
					_, err = s.Plan(b.Context(), []byte(current+"\n"), w, testNow)
				}
				if err != nil {
					b.Log(err)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/value")
			})
		}
	}
}
