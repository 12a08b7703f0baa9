package serve_test

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// fits says where a value violates a schema. It knows the part of JSON Schema that the file
// uses, and returns an error for the rest.
func (d description) fits(schema, value any, where string) error {
	s := d.at(schema)
	for keyword := range s {
		switch keyword {
		case "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "pattern", "minimum", "maximum", "minItems", "maxItems",
			"description", "format":
		default:
			return fmt.Errorf("%s: a keyword that this test does not know: %s", where, keyword)
		}
	}
	if list, ok := s["anyOf"].([]any); ok {
		var errs []error
		for _, one := range list {
			err := d.fits(one, value, where)
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	if wanted, ok := s["const"]; ok && wanted != value {
		return fmt.Errorf("%s: %v is not %v", where, value, wanted)
	}
	if list, ok := s["enum"].([]any); ok && !slices.Contains(list, value) {
		return fmt.Errorf("%s: %v is none of %v", where, value, list)
	}
	if wanted, ok := s["type"]; ok && !slices.Contains(types(wanted), typeOf(value)) && (typeOf(value) != "integer" || !slices.Contains(types(wanted), "number")) {
		return fmt.Errorf("%s: %v is a %s, not %v", where, value, typeOf(value), wanted)
	}
	switch value := value.(type) {
	case string:
		return fitsText(s, value, where)
	case float64:
		if least, ok := s["minimum"].(float64); ok && value < least {
			return fmt.Errorf("%s: %v is below %v", where, value, least)
		}
		if most, ok := s["maximum"].(float64); ok && value > most {
			return fmt.Errorf("%s: %v is above %v", where, value, most)
		}
	case []any:
		for i, one := range value {
			if err := d.fits(s["items"], one, where+"/"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
	case map[string]any:
		properties, described := s["properties"].(map[string]any)
		for name, one := range value {
			if !described {
				break
			}
			if properties[name] == nil {
				return fmt.Errorf("%s: %s is not described", where, name)
			}
			if err := d.fits(properties[name], one, where+"/"+name); err != nil {
				return err
			}
		}
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, there := value[name.(string)]; !there {
				return fmt.Errorf("%s: %s is missing", where, name)
			}
		}
	}
	return nil
}

func fitsText(s map[string]any, value, where string) error {
	if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(value) {
		return fmt.Errorf("%s: %q is not as %s", where, value, pattern)
	}
	if s["format"] == "date-time" {
		if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	return nil
}

func types(wanted any) (list []string) {
	if one, ok := wanted.(string); ok {
		return []string{one}
	}
	for _, one := range wanted.([]any) {
		list = append(list, one.(string))
	}
	return list
}

func typeOf(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if value == math.Trunc(value) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}
