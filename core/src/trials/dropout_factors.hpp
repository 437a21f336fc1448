#pragma once

#include <heddle/core/operations/dropout.hpp>
#include <vector>

namespace heddle {

/// The factors by which dropout multiplies a [rows, columns] matrix, row major, by its definition (dropout.hpp); ones
/// where it is off.
std::vector<double> dropout_factors(Dropout const& dropout, std::int64_t rows, std::int64_t columns);

}  // namespace heddle
