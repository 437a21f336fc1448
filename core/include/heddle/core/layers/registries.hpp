#pragma once

#include <heddle/core/layers/registry.hpp>
#include <heddle/core/operations/registry.hpp>
#include <heddle/core/parameters/schedules.hpp>
#include <heddle/core/tasks/corpus_metric.hpp>
#include <heddle/core/tasks/task.hpp>

namespace heddle {

/// Everything that built-in code and plug-ins register, in one value made by `main`.
struct Registries {
  KernelRegistries kernels;
  LayerRegistry layers;
  TaskRegistry tasks;
  ScheduleRegistry schedules;
  MetricRegistry metrics;
};

}  // namespace heddle
