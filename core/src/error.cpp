#include <heddle/core/error.hpp>
