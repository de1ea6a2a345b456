package script

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Steps returns functions as commands. The parameters of a function get the
// arguments of its step: texts, numbers, durations, and values that parse a
// text, such as netip.Addr. A slice as the last parameter gets the remaining
// arguments, and a first parameter of type *Script gets the script. The results
// are the text of the step, and perhaps an error:
//
//	"pass":    time.Sleep,
//	"serve":   func(port uint16, targets ...netip.AddrPort) error { … },
//	"answers": func() int { … },
func Steps(functions map[string]any) map[string]Command {
	commands := make(map[string]Command, len(functions))
	for name, f := range functions {
		commands[name] = commandOf(reflect.ValueOf(f))
	}
	return commands
}

func commandOf(f reflect.Value) Command {
	return func(s *Script, args []string) (string, error) {
		in, err := parameters(f.Type(), s, args)
		switch {
		case err != nil:
			return "", err
		case f.Type().IsVariadic():
			return textOf(f.CallSlice(in))
		}
		return textOf(f.Call(in))
	}
}

// parameters returns arguments as the parameters of a function.
func parameters(f reflect.Type, s *Script, args []string) (in []reflect.Value, err error) {
	for i := range f.NumIn() {
		p := reflect.New(f.In(i)).Elem()
		switch {
		case p.Type() == reflect.TypeFor[*Script]():
			p.Set(reflect.ValueOf(s))
		case p.Kind() == reflect.Slice && i == f.NumIn()-1:
			p.Set(reflect.MakeSlice(p.Type(), len(args), len(args)))
			for at, arg := range args {
				if err := parse(arg, p.Index(at)); err != nil {
					return nil, err
				}
			}
			args = nil
		case len(args) == 0:
			return nil, fmt.Errorf("argument %d is missing", len(in)+1)
		default:
			if err := parse(args[0], p); err != nil {
				return nil, err
			}
			args = args[1:]
		}
		in = append(in, p)
	}
	if len(args) > 0 {
		return nil, fmt.Errorf("too many arguments: %q", args)
	}
	return in, nil
}

// parse sets a value to an argument.
func parse(arg string, to reflect.Value) (err error) {
	switch p := to.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		err = p.UnmarshalText([]byte(arg))
	case *time.Duration:
		*p, err = time.ParseDuration(arg)
	default:
		if to.Kind() == reflect.String {
			to.SetString(arg)
		} else {
			err = json.Unmarshal([]byte(arg), p)
		}
	}
	if err != nil {
		err = fmt.Errorf("argument %q: %w", arg, err)
	}
	return err
}

// SetFields sets fields of a struct to the values of arguments such as
// first-pause=2s or ips=10.0.0.1,10.0.0.2. The case of a name and its dashes do
// not matter. It returns the arguments that name no field.
func SetFields(of any, args []string) (rest []string, err error) {
	for _, arg := range args {
		name, value, isField := strings.Cut(arg, "=")
		name = strings.ReplaceAll(name, "-", "")
		field := reflect.ValueOf(of).Elem().FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, name) })
		if !isField || !field.IsValid() {
			rest = append(rest, arg)
			continue
		}
		if err := set(field, value); err != nil {
			return nil, fmt.Errorf("%s: %w", arg, err)
		}
	}
	return rest, nil
}

// set sets a field to a value, or a slice to values that commas separate.
func set(field reflect.Value, value string) error {
	if field.Kind() != reflect.Slice {
		return parse(value, field)
	}
	values := strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
	field.Set(reflect.MakeSlice(field.Type(), len(values), len(values)))
	for i, v := range values {
		if err := parse(v, field.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// textOf returns the results of a function as those of a command.
func textOf(results []reflect.Value) (text string, err error) {
	for _, r := range results {
		switch v := r.Interface().(type) {
		case nil:
		case error:
			err = v
		case string:
			text += v
		default:
			text += fmt.Sprintln(v)
		}
	}
	return text, err
}
