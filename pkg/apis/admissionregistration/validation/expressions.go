// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

// maxMatchConditions is the maximum of a webhook or policy.
const maxMatchConditions = 64

// use is the purpose of an expression, which decides its variables and result type.
type use int

const (
	matchCondition use = iota
	variable
	validationCondition
	message
	auditAnnotation
	applyConfiguration
	jsonPatch
)

// expression is an expression with its use.
type expression struct {
	use  use
	text string
}

// expressions are the expressions of a stored object. They are compiled in the environment of
// stored expressions, so that the rest of the object can be updated after a downgrade.
type expressions sets.Set[expression]

func (e expressions) add(use use, text string) { e[expression{use, text}] = sets.Empty{} }

func (e expressions) addConditions(conditions []admissionregistrationv1.MatchCondition) {
	for _, condition := range conditions {
		e.add(matchCondition, condition.Expression)
	}
}

func (e expressions) addVariables(variables []admissionregistrationv1.Variable) {
	for _, v := range variables {
		e.add(variable, v.Expression)
	}
}

// checker compiles the expressions of one object.
type checker struct {
	compiler plugincel.Compiler
	// params is true if the policy has parameters.
	params bool
	stored expressions
}

// plainCompiler compiles without variables. It is stateless and expensive to create.
var plainCompiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(baseEnvironment())
})

func baseEnvironment() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

// newChecker returns the checker of an object with or without variables.
func newChecker(variables, params bool, stored expressions) (checker, error) {
	if !variables {
		return checker{plainCompiler(), params, stored}, nil
	}
	compiler, err := plugincel.NewCompositedCompiler(baseEnvironment())
	if err != nil {
		return checker{}, fmt.Errorf("prepare to compile expressions with variables: %w", err)
	}
	return checker{compiler, params, stored}, nil
}

// check compiles one expression.
func (c checker) check(use use, text string, path *field.Path) field.ErrorList {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return field.ErrorList{field.Required(path, missing(use))}
	}
	env := c.environment(use, text)
	if use == matchCondition || use == applyConfiguration || use == jsonPatch {
		text = trimmed // as Kubernetes has it in its messages
	}
	accessor, sees := c.accessor(use, text)
	result := c.compiler.CompileCELExpression(accessor, sees, env)
	return asFieldErrors(result.Error, text, path)
}

// checkVariable compiles a variable, which later expressions can use.
func (c checker) checkVariable(v *admissionregistrationv1.Variable, path *field.Path) field.ErrorList {
	if strings.TrimSpace(v.Expression) == "" {
		return field.ErrorList{field.Required(path, missing(variable))}
	}
	composed, ok := c.compiler.(*plugincel.CompositedCompiler)
	if !ok {
		return field.ErrorList{field.InternalError(path, errors.New("variable composition is not allowed"))}
	}
	result := composed.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression},
		plugincel.OptionalVariableDeclarations{HasParams: c.params, HasAuthorizer: true}, c.environment(variable, v.Expression))
	return asFieldErrors(result.Error, v.Expression, path)
}

func (c checker) environment(use use, text string) environment.Type {
	if _, known := c.stored[expression{use, text}]; known {
		return environment.StoredExpressions
	}
	return environment.NewExpressions
}

// accessor returns an expression as the plugins compile it, and its variables.
func (c checker) accessor(use use, text string) (plugincel.ExpressionAccessor, plugincel.OptionalVariableDeclarations) {
	sees := plugincel.OptionalVariableDeclarations{HasParams: c.params, HasAuthorizer: true}
	switch use {
	case matchCondition:
		return &matchconditions.MatchCondition{Expression: text}, sees
	case message:
		sees.HasAuthorizer = false
		return &validating.MessageExpressionCondition{MessageExpression: text}, sees
	case auditAnnotation:
		return &validating.AuditAnnotationCondition{ValueExpression: text}, sees
	case applyConfiguration:
		sees.HasPatchTypes = true
		return &patch.ApplyConfigurationCondition{Expression: text}, sees
	case jsonPatch:
		sees.HasPatchTypes = true
		return &patch.JSONPatchCondition{Expression: text}, sees
	default:
		return &validating.ValidationCondition{Expression: text}, sees
	}
}

// missing is Kubernetes' message for an empty expression.
func missing(use use) string {
	switch use {
	case variable, validationCondition:
		return "expression is not specified"
	case auditAnnotation:
		return "valueExpression is not specified"
	default:
		return ""
	}
}

func asFieldErrors(err *cel.Error, text string, path *field.Path) field.ErrorList {
	switch {
	case err == nil:
		return nil
	case err.Type == cel.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, err.Detail)}
	case err.Type == cel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, text, err.Detail)}
	default:
		return field.ErrorList{field.InternalError(path, err)}
	}
}

func (c checker) checkConditions(conditions []admissionregistrationv1.MatchCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxMatchConditions {
		errs = append(errs, field.TooMany(path, len(conditions), maxMatchConditions))
	}
	// Conditions are evaluated before variables.
	c.compiler = plainCompiler()
	seen := sets.New[string]()
	for i, condition := range conditions {
		errs = append(errs, c.check(matchCondition, condition.Expression, path.Index(i).Child("expression"))...)
		namePath := path.Index(i).Child("name")
		if condition.Name == "" {
			errs = append(errs, field.Required(namePath, ""))
			continue
		}
		errs = append(errs, metavalidation.Invalid(namePath, condition.Name, validation.IsQualifiedName(condition.Name))...)
		if seen.Has(condition.Name) {
			errs = append(errs, field.Duplicate(namePath, condition.Name))
		}
		seen.Insert(condition.Name)
	}
	return errs
}
