package admission

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// maxAffinitySeconds is the maximum of
// sessionAffinityConfig.clientIP.timeoutSeconds: one day.
const maxAffinitySeconds = 86400

func defaultAffinity(spec *corev1.ServiceSpec) {
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		config := spec.SessionAffinityConfig
		if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
}

func validateAffinity(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return validateEnum(path.Child("sessionAffinity"), spec.SessionAffinity,
			corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	}
	timeout := *spec.SessionAffinityConfig.ClientIP.TimeoutSeconds
	if timeout < 1 || timeout > maxAffinitySeconds {
		path := path.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds")
		// The message is that of the API server, although 86400 is valid.
		return field.ErrorList{field.Invalid(path, timeout, "must be greater than 0 and less than 86400")}
	}
	return nil
}
