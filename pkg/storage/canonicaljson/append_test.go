// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package canonicaljson

import (
	"encoding/json"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// nested returns an array or object of a depth.
func nested(opening, innermost, closing string, depth int) string {
	return strings.Repeat(opening, depth) + innermost + strings.Repeat(closing, depth)
}

// appended has texts with the results that TestAppend expects, "" for those that are refused. FuzzAppend begins with them.
var appended = map[string]struct{ text, want string }{
	"canonical":              {`{"a":[1,"b",true,false,null],"c":{}}`, `{"a":[1,"b",true,false,null],"c":{}}`},
	"white space":            {" \n\t\r{ \"a\" : [ 1 ,\n2 ] , \"b\" : { } , \"c\" : [ ] }\r\n", `{"a":[1,2],"b":{},"c":[]}`},
	"other white space":      {"{\v}", ""},
	"order":                  {`{"b":{"d":1,"c":[{"f":2,"e":3}]},"":0,"a":"x"}`, `{"":0,"a":"x","b":{"c":[{"e":3,"f":2}],"d":1}}`},
	"order of escaped keys":  {`{"z":1,"<":2,"\u0041":3,"\n":4}`, `{"\n":4,"\u003c":2,"A":3,"z":1}`},
	"order by bytes":         {`{"é":1,"z":2,"Z":3}`, `{"Z":3,"z":2,"é":1}`},
	"needless escapes":       {`"\u0041\/\u00e9\u000a\u003C"`, `"A/é\n\u003c"`},
	"missing escapes":        {`"<>&` + "\u2028\u2029é" + `"`, `"\u003c\u003e\u0026\u2028\u2029é"`},
	"kept escapes":           {`"\"\\\b\f\n\r\t\u0000\u007f"`, `"\"\\\b\f\n\r\t\u0000` + "\x7f" + `"`},
	"escaped backslash":      {`["\\","<\\",1]`, `["\\","\u003c\\",1]`},
	"surrogate pair":         {`"\ud83d\ude00"`, ""},
	"half a surrogate pair":  {`"\uD83D"`, ""},
	"four bytes":             {`"😀<"`, `"😀\u003c"`},
	"not UTF-8":              {"\"\xff\"", ""},
	"not UTF-8, not as is":   {"\"<\xff\"", ""},
	"control character":      {"\"a\nb\"", ""},
	"unknown escape":         {`"\x"`, ""},
	"short escape":           {`"\u00"`, ""},
	"no end of a string":     {`"a\"`, ""},
	"integers":               {`[0,-1,999999999999999999]`, `[0,-1,999999999999999999]`},
	"large integer":          {`1000000000000000000`, ""},
	"floats":                 {`[0.5,-1.25,1e+21,1e-7]`, `[0.5,-1.25,1e+21,1e-7]`},
	"integral float":         {`1.0`, ""},
	"exponent":               {`1e2`, ""},
	"capital exponent":       {`1E+21`, ""},
	"negative zero":          {`-0`, ""},
	"negative zero, float":   {`-0.0`, ""},
	"zeros before":           {`007`, ""},
	"zeros after":            {`0.50`, ""},
	"imprecise":              {`0.10000000000000000001`, ""},
	"too large":              {`1e400`, ""},
	"plus":                   {`+1`, ""},
	"no digit":               {`-`, ""},
	"key twice":              {`{"a":1,"b":2,"a":1}`, ""},
	"key twice, neighbours":  {`{"a":1,"a":2}`, ""},
	"key in two spellings":   {`{"a":1,"\u0061":2}`, ""},
	"escape in two forms":    {`{"<":1,"x":2,"\u003c":3}`, ""},
	"key twice, deep":        {`[{"x":{"a":1,"a":1}}]`, ""},
	"key in several objects": {`[{"a":{"a":1}},{"a":2}]`, `[{"a":{"a":1}},{"a":2}]`},
	"key of another case":    {`{"a":1,"A":2}`, `{"A":2,"a":1}`},
	"deep array":             {nested("[", "", "]", maxDepth), nested("[", "", "]", maxDepth)},
	"too deep array":         {nested("[", "", "]", maxDepth+1), ""},
	"deep object":            {nested(`{"a":`, "1", "}", maxDepth), nested(`{"a":`, "1", "}", maxDepth)},
	"too deep object":        {nested(`{"a":`, "1", "}", maxDepth+1), ""},
	"wide after deep":        {"[" + nested("[", "", "]", maxDepth-1) + ",[]]", "[" + nested("[", "", "]", maxDepth-1) + ",[]]"},
	"trailing text":          {`{} {}`, ""},
	"trailing comma":         {`[1,]`, ""},
	"trailing comma, object": {`{"a":1,}`, ""},
	"no comma":               {`[1 2]`, ""},
	"no colon":               {`{"a" 1}`, ""},
	"no value":               {`{"a":}`, ""},
	"key that is no string":  {`{1:1}`, ""},
	"no end":                 {`[1`, ""},
	"another end":            {`[1}`, ""},
	"half a literal":         {`tru`, ""},
	"long literal":           {`nulls`, ""},
	"comment":                {`/**/1`, ""},
	"YAML":                   {`a: b`, ""},
	"empty":                  {``, ""},
	"only white space":       {" \n", ""},
}

func TestAppend(t *testing.T) {
	t.Parallel()
	for name, test := range appended {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := Append([]byte("before"), []byte(test.text))
			if ok != (test.want != "") {
				t.Fatalf("%s is %s, ok: %v", test.text, got, ok)
			}
			if ok {
				expect.Equal(t, "before"+test.want, string(got))
			}
		})
	}
}

// FuzzAppend compares Append with Kubernetes' decoder and encoding/json's encoder. It may refuse any text except those that
// it returns.
func FuzzAppend(f *testing.F) {
	for _, test := range appended {
		f.Add([]byte(test.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := Append(nil, text)
		if !ok {
			return
		}
		var decoded any
		expect.NoError(t, utiljson.Unmarshal(text, &decoded), "%q was taken for %s", text, got)
		want, err := json.Marshal(decoded)
		expect.NoError(t, err)
		expect.Equal(t, string(want), string(got), "%q", text)
		if again, ok := Append(nil, got); !ok || string(again) != string(got) {
			t.Errorf("%s is appended as %s, ok: %v", got, again, ok)
		}
	})
}
