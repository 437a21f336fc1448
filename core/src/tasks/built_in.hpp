#pragma once

#include <heddle/core/tasks/task.hpp>
#include <memory>

namespace heddle {

std::shared_ptr<Task const> make_translation();
std::shared_ptr<Task const> make_language_model();
std::shared_ptr<Task const> make_masked_language_model();
std::shared_ptr<Task const> make_denoising();

}  // namespace heddle
