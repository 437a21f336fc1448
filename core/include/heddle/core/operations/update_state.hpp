#pragma once

#include <concepts>
#include <cstdint>
#include <heddle/core/tensor/tensor.hpp>
#include <string>

namespace heddle {

/// The shape of a tensor that an update rule keeps for a parameter. A parameter is taken as a matrix, whose columns are
/// its last dimension and whose rows are all others; of one dimension it is one row. Its rows and columns are those of
/// the whole parameter.
enum class StateShape : std::uint8_t {
  parameter,  ///< the parameter's
  row,        ///< a number for each row: the parameter's shape without its last dimension; [1] for one dimension
  column,     ///< a number for each column: [the last dimension]
  scalar      ///< [1]
};
/// The shape of state of a parameter of this shape.
Shape shape_of(StateShape state, Shape const& parameter);

/// A tensor that an update rule keeps for a parameter. A key alone is one of the parameter's shape.
struct StateTensor {
  template <std::convertible_to<std::string> Text>
  // NOLINTNEXTLINE(google-explicit-constructor): a key alone is enough
  StateTensor(Text const& name, StateShape kept = StateShape::parameter) : key(name), shape(kept) {}

  std::string key;  ///< under which a checkpoint has it beside the parameter's value: "adam.first_moment"
  StateShape shape;

  bool operator==(StateTensor const&) const = default;
};

/// "adam.first_moment", "factored.rows (one number for each row)"
std::string describe(StateTensor const& state);

}  // namespace heddle
