#pragma once

#include <heddle/core/parameters/parameter.hpp>

namespace heddle {

/// Follows a step's last backward pass, so that a gradient can be reduced while others are still computed.
class GradientProgress {
 public:
  virtual ~GradientProgress() = default;
  /// One of the parameter's uses (see ParameterSet::uses) has added its last part of the step's gradient. After the
  /// last use the gradient is final: it must not change before the step's reduction is done.
  virtual void use_done(Parameter const& parameter) = 0;
  /// Moves the communication in progress on. Layers call it between pieces of work.
  virtual void progress() = 0;
};

}  // namespace heddle
