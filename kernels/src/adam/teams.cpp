#include <heddle/core/operations/row_lanes.hpp>

#include "rule.hpp"
#include "support/factories.hpp"

namespace heddle {

namespace {

using kernels::ColumnGroup;

struct TeamAdam {
  /// One group of elements a work item: neighbouring threads read neighbouring elements.
  template <class Real>
  static void update(Execution& execution, AdamCall const& call) {
    Real* const values = call.value.data<Real>();
    Real const* const gradients = call.gradient.data<Real>();
    Real* const first_moments = call.first_moment.data<Real>();
    Real* const second_moments = call.second_moment.data<Real>();
    kernels::AdamSettings const settings(call);
    std::int64_t const size = call.value.size();
    kernels::for_each(
        execution, "adam", kernels::group_count(size), KOKKOS_LAMBDA(std::int64_t index) {
          ColumnGroup const at(index, size);
          auto const factors = settings.template factors<Real>();
          auto value = at.template load<Real>(values);
          auto const gradient = at.template load<Real>(gradients);
          auto first_moment = at.template load<Real>(first_moments);
          auto second_moment = at.template load<Real>(second_moments);
          for (int i = 0; i < kernels::group_columns; ++i) {
            factors.update(value[i], gradient[i], first_moment[i], second_moment[i]);
          }
          at.store(value, values);
          at.store(first_moment, first_moments);
          at.store(second_moment, second_moments);
        });
  }
};

}  // namespace

void add_team_adam_kernels(KernelRegistries& registries) {
  registries.of<Adam>().add("teams", speeds::teams(), std::make_shared<AdamFrontEnd<TeamAdam>>());
}

}  // namespace heddle
