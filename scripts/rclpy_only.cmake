# cmake -DCMAKE_PROJECT_INCLUDE=scripts/rclpy_only.cmake: an interface package for rclpy alone, in
# less than half of the time. C++ is most of such a build, and ROS 2 from wheels has no use for it. A robot
# builds with colcon, and makes everything.
find_package(ament_cmake_core REQUIRED)
macro(ament_register_extension point package file)
  if(NOT "${package}" MATCHES "_cpp$")
    list(APPEND AMENT_EXTENSIONS_${point} "${package}:${file}")
  endif()
endmacro()

# Headers are most of what the compiler reads.
function(join_sources)
  foreach(part rosidl_generator_py rosidl_typesupport_c rosidl_typesupport_fastrtps_c
      rosidl_typesupport_introspection_c)
    if(TARGET ${PROJECT_NAME}__${part})
      set_target_properties(${PROJECT_NAME}__${part} PROPERTIES UNITY_BUILD ON)
    endif()
  endforeach()
endfunction()
cmake_language(DEFER CALL join_sources)
