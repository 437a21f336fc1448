#pragma once

#include <heddle/core/parameters/parameter.hpp>
#include <heddle/core/tensor/doubles.hpp>

#include "test.hpp"

namespace heddle {

/// Keeps the values of a set's parameters elsewhere: copies them in before a use and fills them with NaN after it.
class ValuesElsewhere final : public ParameterUse {
 public:
  explicit ValuesElsewhere(ParameterSet const& parameters) {
    for (Parameter const& parameter : parameters.all()) {
      values_[&parameter] = to_doubles(parameter.value);
      drop(parameter);
    }
  }

  void before_use(std::span<Parameter const* const> parameters) override {
    EXPECT_FALSE(in_use_);
    in_use_ = true;
    ++uses_;
    for (Parameter const* const parameter : parameters) {
      copy_from_doubles(parameter->value, values_.at(parameter));
    }
  }
  void after_use(std::span<Parameter const* const> parameters) noexcept override {
    EXPECT_TRUE(in_use_);
    in_use_ = false;
    for (Parameter const* const parameter : parameters) {
      drop(*parameter);
    }
  }

  std::int64_t uses() const { return uses_; }
  bool in_use() const { return in_use_; }

 private:
  static void drop(Parameter const& parameter) {
    auto const size = static_cast<std::size_t>(parameter.value.size());
    copy_from_doubles(parameter.value, std::vector<double>(size, std::numeric_limits<double>::quiet_NaN()));
  }

  std::map<Parameter const*, std::vector<double>> values_;
  std::int64_t uses_ = 0;
  bool in_use_ = false;
};

}  // namespace heddle
