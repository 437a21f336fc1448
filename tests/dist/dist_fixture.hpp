#pragma once

#include <heddle/core/parallel/communicator.hpp>
#include <heddle/dist/mpi/mpi.hpp>

#include "test.hpp"

namespace heddle {

/// A test that every rank runs, with a fresh world for each test.
class DistTest : public testing::Test {
 protected:
  Mesh mesh_of(MeshShape const& shape) const { return {shape, world_.rank(), world_.size()}; }

  /// Collective where the test has not asked for this shape before: it takes MPI a long time to make the groups.
  ParallelState state_of(MeshShape const& shape) {
    auto known = states_.find(shape);
    if (known == states_.end()) {
      known = states_.emplace(shape, make_parallel_state(world_, mesh_of(shape))).first;
    }
    return known->second;
  }

  MpiSession session_;
  Communicator world_ = session_.world();

 private:
  std::map<MeshShape, ParallelState> states_;
};

template <class Element>
Tensor tensor_of(std::vector<Element> const& elements) {
  return from_host(std::span<Element const>(elements), {static_cast<std::int64_t>(elements.size())});
}

/// The message of the exception that `action` throws, called once: a matcher would call it again to explain a failure,
/// and wait for ranks that do not.
inline std::string error_of(auto const& action) {
  try {
    action();
  } catch (Error const& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// An axis inside data that splits parameters as tensor does, with other tokens on each of its ranks.
inline constexpr MeshAxis expert_axis{"expert"};

inline MeshShape with_experts(int data, int experts, int tensor = 1) {
  return MeshShape({{MeshAxis::pipeline, 1},
                    {MeshAxis::data, data},
                    {expert_axis, experts},
                    {MeshAxis::context, 1},
                    {MeshAxis::tensor, tensor}});
}

/// Layouts of `ranks` ranks that use each axis alone and several together, and an expert axis.
inline std::vector<MeshShape> layouts_of(int ranks) {
  std::vector<MeshShape> layouts{{ranks, 1, 1, 1}, {1, ranks, 1, 1}, {1, 1, ranks, 1}, {1, 1, 1, ranks}};
  if (ranks % 2 == 0) {
    layouts.push_back({1, ranks / 2, 1, 2});
    layouts.push_back({2, ranks / 2, 1, 1});
    layouts.push_back(with_experts(ranks / 2, 2));
  }
  if (ranks % 8 == 0) {
    layouts.push_back({2, ranks / 8, 2, 2});
    layouts.push_back(with_experts(ranks / 4, 2, 2));
  }
  return layouts;
}

/// Every layout of `ranks` ranks; of more than 4, those of one axis and those of three, and some with an expert axis.
inline std::vector<MeshShape> all_layouts_of(int ranks) {
  std::vector<MeshShape> layouts = shapes_of(ranks);
  std::erase_if(layouts, [&](MeshShape const& layout) {
    int const max = std::ranges::max_element(layout.axes(), {}, &MeshShape::Axis::size)->size;
    return ranks > 4 && max != 2 && max != ranks;
  });
  if (ranks % 2 == 0) {
    layouts.push_back(with_experts(1, ranks));
    layouts.push_back(with_experts(ranks / 2, 2));
  }
  if (ranks % 4 == 0) {
    layouts.push_back(with_experts(ranks / 4, 2, 2));
  }
  return layouts;
}

}  // namespace heddle
