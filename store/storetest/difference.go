package storetest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/elido-app/webhook/store"
)

// difference says where got is not want; "" if nowhere.
func difference(got, want any) string {
	return differ("", reflect.ValueOf(got), reflect.ValueOf(want))
}

func differ(path string, got, want reflect.Value) string {
	if got.IsValid() && want.IsValid() && got.Type() == want.Type() {
		switch g := got.Interface().(type) {
		case time.Time:
			if g.Equal(want.Interface().(time.Time)) {
				return ""
			}
			return mismatch(path, g, want.Interface())
		case store.Sealed:
			if g.Equal(want.Interface().(store.Sealed)) {
				return ""
			}
			return mismatch(path, "another secret", "the one that was sealed")
		case []byte:
			if string(g) == string(want.Interface().([]byte)) {
				return ""
			}
			return mismatch(path, fmt.Sprintf("%q", g), fmt.Sprintf("%q", want.Interface()))
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
			if got.Len() != want.Len() {
				return mismatch(path, got.Interface(), want.Interface())
			}
			for i := range got.Len() {
				if d := differ(fmt.Sprintf("%s[%d]", path, i), got.Index(i), want.Index(i)); d != "" {
					return d + describe(got, want)
				}
			}
			return ""
		case reflect.Map:
			if got.Len() == 0 && want.Len() == 0 {
				return ""
			}
		}
		if reflect.DeepEqual(got.Interface(), want.Interface()) {
			return ""
		}
		return mismatch(path, got.Interface(), want.Interface())
	}
	return fmt.Sprintf("%s: got a %v, want a %v", path, got, want)
}

// describe shows short lists whole, which says more than their first difference.
func describe(got, want reflect.Value) string {
	switch got.Type().Elem().Kind() {
	case reflect.Int64, reflect.String, reflect.Int:
		return fmt.Sprintf(" (%v, want %v)", got, want)
	}
	return ""
}

func mismatch(path string, got, want any) string {
	if path != "" {
		path += " "
	}
	return fmt.Sprintf("%sgot %v, want %v", path, got, want)
}
