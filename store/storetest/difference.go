package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/elido-app/webhook/store"
)

// difference says where got is not want; "" if nowhere.
func difference(got, want any) string {
	return differ("", reflect.ValueOf(got), reflect.ValueOf(want))
}

func differ(path string, got, want reflect.Value) string {
	if !got.IsValid() || !want.IsValid() || got.Type() != want.Type() {
		return fmt.Sprintf("%s: got a %v, want a %v", path, got, want)
	}
	switch g := got.Interface().(type) {
	case time.Time:
		if g.Equal(want.Interface().(time.Time)) {
			return ""
		}
		return mismatch(path, got, want)
	case store.Sealed:
		if g.Equal(want.Interface().(store.Sealed)) {
			return ""
		}
		return strings.TrimSpace(path + " got another secret than the one that was sealed")
	case []byte:
		if string(g) == string(want.Interface().([]byte)) {
			return ""
		}
		return mismatch(path, got, want)
	}
	switch got.Kind() {
	case reflect.Struct:
		for i := range got.NumField() {
			field := path + "." + got.Type().Field(i).Name
			if d := differ(field, got.Field(i), want.Field(i)); d != "" {
				return d
			}
		}
		return ""
	case reflect.Slice:
		return differSlices(path, got, want)
	case reflect.Map:
		if got.Len() == 0 && want.Len() == 0 {
			return ""
		}
	}
	if reflect.DeepEqual(got.Interface(), want.Interface()) {
		return ""
	}
	return mismatch(path, got, want)
}

func differSlices(path string, got, want reflect.Value) string {
	n := min(got.Len(), want.Len())
	first := ""
	for i := 0; i < n && first == ""; i++ {
		first = differ(fmt.Sprintf("%s[%d]", path, i), got.Index(i), want.Index(i))
	}
	switch {
	case first == "" && got.Len() == want.Len():
		return ""
	case got.Type().Elem().Kind() != reflect.Struct: // lists of few words say more as a whole
		return mismatch(path, got, want)
	case first == "":
		return strings.TrimSpace(fmt.Sprintf("%s got %d, want %d: the first %d are as wanted", path, got.Len(), want.Len(), n))
	case got.Len() != want.Len():
		first += fmt.Sprintf(" (and %d in all, want %d)", got.Len(), want.Len())
	}
	return first
}

func mismatch(path string, got, want reflect.Value) string {
	if path != "" {
		path += " "
	}
	return fmt.Sprintf("%sgot %s, want %s", path, show(got), show(want))
}

// show shows a value as it is easy to compare with the calls.
func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Time:
		if x.IsZero() {
			return "the zero time"
		}
		return fmt.Sprintf("%s (%s)", x.Format(time.RFC3339Nano), clock(x))
	case []byte:
		return fmt.Sprintf("%.200q", x)
	case string:
		return fmt.Sprintf("%.200q", x)
	case []string:
		return fmt.Sprintf("%.200q", x)
	}
	if v.Kind() == reflect.Slice {
		const most = 30
		if n := v.Len(); n > most {
			return fmt.Sprintf("%v and %d more", v.Slice(0, most), n-most)
		}
	}
	return fmt.Sprintf("%+v", v)
}
