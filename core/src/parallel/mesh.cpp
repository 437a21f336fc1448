#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/mesh.hpp>
#include <limits>
#include <utility>

namespace heddle {

namespace {

/// The distance of a layout from the wanted one, its criteria in order of importance.
struct Distance {
  int changes = 0;
  double factor = 1;
  double factor_outside_data = 1;

  auto operator<=>(Distance const&) const = default;
};

Distance distance(std::array<int, mesh_axes> const& wanted, std::array<int, mesh_axes> const& layout) {
  Distance result;
  for (std::size_t axis = 0; axis < mesh_axes; ++axis) {
    auto const [smaller, larger] = std::minmax(wanted[axis], layout[axis]);
    if (smaller == 0 || smaller == larger) {
      continue;
    }
    double const factor = static_cast<double>(larger) / smaller;
    ++result.changes;
    result.factor *= factor;
    result.factor_outside_data *= static_cast<MeshAxis>(axis) == MeshAxis::data ? 1 : factor;
  }
  return result;
}

}  // namespace

std::vector<int> divisors_of(int number) {
  std::vector<int> divisors;
  for (int divisor = 1; divisor <= number; ++divisor) {
    if (number % divisor == 0) {
      divisors.push_back(divisor);
    }
  }
  return divisors;
}

Mesh::Mesh(std::array<int, mesh_axes> sizes, int rank, int ranks) : sizes_(sizes), rank_(rank) {
  constexpr std::int64_t uncountable = std::numeric_limits<int>::max();
  std::int64_t product = 1;
  for (std::size_t axis = 0; axis < mesh_axes; ++axis) {
    if (sizes[axis] < 1) {
      throw ConfigError(
          fmt::format("parallel.{} = {} must be at least 1", name_of(static_cast<MeshAxis>(axis)), sizes[axis]));
    }
    product = std::min(product * sizes[axis], uncountable);
  }
  if (product != ranks) {
    throw ConfigError(fmt::format("the layout {} needs {}{} ranks, but {} run", to_string(),
                                  product == uncountable ? "at least " : "", product, ranks));
  }
}

int Mesh::coordinate(MeshAxis axis) const {
  int stride = 1;
  for (std::size_t inner = mesh_axes - 1; inner > static_cast<std::size_t>(axis); --inner) {
    stride *= sizes_[inner];
  }
  return rank_ / stride % size(axis);
}

int Mesh::color(MeshAxis axis) const {
  int color = 0;
  for (std::size_t other = 0; other < mesh_axes; ++other) {
    if (other != static_cast<std::size_t>(axis)) {
      color = color * sizes_[other] + coordinate(static_cast<MeshAxis>(other));
    }
  }
  return color;
}

std::string Mesh::to_string() const {
  return fmt::format("pipeline {} × data {} × context {} × tensor {}", sizes_[0], sizes_[1], sizes_[2], sizes_[3]);
}

std::vector<std::array<int, mesh_axes>> nearest_layouts(
    std::array<int, mesh_axes> const& wanted, int ranks,
    std::function<bool(std::array<int, mesh_axes> const&)> const& works, std::size_t count) {
  std::vector<std::pair<Distance, std::array<int, mesh_axes>>> found;
  for (int const pipeline : divisors_of(ranks)) {
    for (int const data : divisors_of(ranks / pipeline)) {
      for (int const context : divisors_of(ranks / pipeline / data)) {
        std::array const layout{pipeline, data, context, ranks / pipeline / data / context};
        if (works(layout)) {
          found.emplace_back(distance(wanted, layout), layout);
        }
      }
    }
  }
  std::ranges::sort(found);
  found.resize(std::min(count, found.size()));
  std::vector<std::array<int, mesh_axes>> layouts;
  for (auto const& [distance_here, layout] : found) {
    layouts.push_back(layout);
  }
  return layouts;
}

std::string list_layouts(std::span<std::array<int, mesh_axes> const> layouts) {
  std::string text;
  for (auto const& sizes : layouts) {
    text += fmt::format("{}parallel.pipeline = {}, data = {}, context = {}, tensor = {}", text.empty() ? "" : "; or ",
                        sizes[0], sizes[1], sizes[2], sizes[3]);
  }
  return text;
}

}  // namespace heddle
